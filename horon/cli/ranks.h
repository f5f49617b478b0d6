#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/net/store.h"

namespace horon::cli {

// Starts this program again as several ranks of one job on this machine, which meet in a store of
// their own, and waits for them. (The launcher for hosts and any program is another thing.)
struct RankJob {
  int ranks = 2;
  std::vector<std::string> arguments;  // each rank also gets --rank R --size N --store FOLDER
  std::vector<std::string> mpirun;     // not empty: started by this command, which knows the ranks
};

// Puts `message` under "plan" for the ranks and returns what rank 0 put under "result". Throws
// Error with the output of the first rank that failed. No rank outlives the call.
std::string run_ranks(const RankJob& job, const std::string& message);

// {"mpirun.openmpi", ...} or empty if the MPI is not installed or its part does not load; `why`
// says so.
std::vector<std::string> mpirun_command(const std::string& flavour, int ranks,
                                        const std::vector<std::string>& part_folders,
                                        std::string& why);

}  // namespace horon::cli
