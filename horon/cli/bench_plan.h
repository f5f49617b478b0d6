#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace horon::cli {

// What the ranks of one benchmark job measure; travels to them as JSON.
struct BenchPlan {
  std::vector<std::string> contenders;  // see contender_names()
  std::vector<uint64_t> sizes;          // bytes
  std::string dtype = "f32";
  double seconds = 2.0;  // time for each size, at most
  int max_rounds = 60;
  bool shows_progress = false;
};

// One contender at one size on a number of ranks.
struct BenchPoint {
  int ranks = 0;
  uint64_t bytes = 0;
  std::string contender;
  double median_us = 0;
  double p95_us = 0;
  double gb_per_s = 0;        // bytes of one rank's buffer over the median
  double share_of_floor = 0;  // floor's median over this median
  int rounds = 0;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BenchPlan, contenders, sizes, dtype, seconds, max_rounds,
                                   shows_progress)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BenchPoint, ranks, bytes, contender, median_us, p95_us, gb_per_s,
                                   share_of_floor, rounds)

// floor: a[i] += 1 over own memory; shm, shm_plain (buffers outside the heap), exact, shm_f16 and
// shm_bf16 (the same bytes as halves), shm_max, gloo, mpi, hier: ours; raw_mpi, raw_gloo:
// MPI_Allreduce and gloo::allreduce themselves.
std::vector<std::string> contender_names();

}  // namespace horon::cli
