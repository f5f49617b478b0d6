#pragma once

#include <string>

namespace horon::cli {

struct BenchRankOptions {
  int rank = -1;  // -1: as MPI says
  int size = 1;
  std::string store;
};

// Runs the plan found in the store; rank 0 leaves the points there as JSON.
void run_bench_rank(const BenchRankOptions& options);

}  // namespace horon::cli
