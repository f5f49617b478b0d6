#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/net/store.h"

namespace horon::bench {

// What run_ranks passes to each rank as --rank, --size, --store.
struct RankOptions {
  int rank = -1;  // -1: MPI assigns it
  int size = 1;
  std::string store;  // a folder
};

// A job of several ranks on this host, each running this program, with a store of their own. (The
// general launcher is in horon/launch.)
struct LocalJob {
  int ranks = 2;
  std::vector<std::string> arguments;  // each rank also gets --rank R --size N --store FOLDER
  std::vector<std::string> mpirun;     // not empty: the command that starts the ranks
};

// Stores `message` under "plan" for the ranks and returns what rank 0 stored under "result". Error
// with the output of the first rank that failed. Blocks until all ranks have ended.
std::string run_ranks(const LocalJob& job, const std::string& message);

// {"mpirun.openmpi", ...}, or empty, with the reason in `why`, if that MPI is not installed or its
// part does not load.
std::vector<std::string> mpirun_command(const std::string& flavour, int ranks,
                                        const std::vector<std::string>& part_folders,
                                        std::string& why);

}  // namespace horon::bench
