#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/net/store.h"

namespace horon::bench {

// What run_ranks passes to each rank as --rank, --size, --store; ranks on several hosts get only
// --plan.
struct RankOptions {
  int rank = -1;  // -1: MPI assigns it
  int size = 1;
  std::string store;  // a folder
  std::string plan;
};

// A job of several ranks, each running this program. On this host they have a store of their own;
// on several hosts `horon run` starts them.
struct RankJob {
  int ranks = 2;
  std::vector<std::string> arguments;  // each rank also gets the above
  std::vector<std::string> mpirun;     // not empty: the command that starts the ranks
  std::vector<std::string> run_flags;  // not empty: those of `horon run`, for several hosts
};

// Passes `message` to the ranks and returns rank 0's answer: what it stored under "result", or, on
// several hosts, printed. Error with the output of the first rank that failed. Blocks until all
// ranks have ended.
std::string run_ranks(const RankJob& job, const std::string& message);

// {"mpirun.openmpi", ...}, or empty, with the reason in `why`, if that MPI is not installed or its
// part does not load.
std::vector<std::string> mpirun_command(const std::string& flavour, int ranks,
                                        const std::vector<std::string>& part_folders,
                                        std::string& why);

}  // namespace horon::bench
