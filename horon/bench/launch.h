#pragma once

#include <string>
#include <vector>

#include "horon/bench/record.h"

namespace horon::bench {

// Options of `horon bench launch`.
struct LaunchOptions {
  int rounds = 20;  // of 8 ranks each
  bool quick = false;
  std::string mpi = "openmpi";
};

// Measures the time from the start of `horon run` to the first all-reduce, compared with mpirun,
// and the cost of an idle job. `folders`: where parts are.
Results run_launch(const LaunchOptions& options, const std::vector<std::string>& folders,
                   const Say& say);

// Runs one rank and reports when it is done. `mpi`: "openmpi" or "mpich" under mpirun, empty for
// us.
void run_first(const std::string& mpi, const Say& say);

}  // namespace horon::bench
