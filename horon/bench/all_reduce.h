#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horon/base/job_settings.h"
#include "horon/bench/ranks.h"
#include "horon/bench/record.h"

namespace horon::bench {

// What the ranks of one benchmark job measure; sent to them as JSON.
struct BenchPlan {
  std::vector<std::string> contenders;  // see contender_names()
  std::vector<uint64_t> sizes;          // bytes
  std::string dtype = "f32";
  double seconds = 2.0;  // limit for each size
  int max_rounds = 60;
  bool shows_progress = false;
  bool is_one_host = true;
};

// The result of one contender at one size on a number of ranks.
struct BenchPoint {
  int ranks = 0;
  uint64_t bytes = 0;
  std::string contender;
  double median_us = 0;
  double p95_us = 0;
  double gb_per_s = 0;        // bytes of one rank's buffer / median
  double share_of_floor = 0;  // floor's median / this median
  int rounds = 0;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BenchPlan, contenders, sizes, dtype, seconds, max_rounds,
                                   shows_progress, is_one_host)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BenchPoint, ranks, bytes, contender, median_us, p95_us, gb_per_s,
                                   share_of_floor, rounds)

// floor: a[i] += 1 in own memory. Ours: shm, shm_plain (buffers outside the heap), exact, shm_f16
// and shm_bf16 (the same bytes as halves), shm_max, tcp, tcp_plain (not encrypted), gloo, hier,
// mpi, mpi_tcp. Libraries by themselves: raw_mpi, raw_mpi_tcp (MPI_Allreduce; over TCP), raw_gloo
// (gloo::allreduce).
std::vector<std::string> contender_names();

// Options of `horon bench allreduce`.
struct AllReduceOptions {
  bool quick = false;
  std::string sizes;     // "4,64KB,100MB"; empty: the default ones
  std::string backends;  // contenders; empty: the default ones that can run here
  std::string ranks;     // empty: "2,4"; between hosts as many as hosts, and four times as many
  std::string dtype = "f32";
  std::string mpi = "openmpi";  // or "mpich"
  std::string hosts;            // "a,b"; empty: this one
  std::string run_flags;        // of `horon run`, for these hosts
};

// One job of the benchmark.
struct AllReduceJob {
  RankJob job;
  BenchPlan plan;
};

// What `options` request, checked before anything runs. UsageError.
void check_names(const AllReduceOptions& options);
std::vector<int> ranks_of(const AllReduceOptions& options);
std::vector<std::string> contenders_of(const AllReduceOptions& options);
// One job for each number of ranks, and one for what goes over TCP. Between hosts: one job that
// compares the ways between them, and for each further number of ranks one for hier on all hosts
// and one for shm on this host. Contenders that cannot run here are skipped with a message; a
// UsageError if they were requested.
std::vector<AllReduceJob> prepare_all_reduce(const AllReduceOptions& options,
                                             const JobSettings& job_settings,
                                             const std::vector<int>& ranks, const Say& say);
// A few sizes on `ranks` ranks, for a few seconds: used by `horon demo`.
AllReduceJob small_all_reduce(int ranks);

std::vector<BenchPoint> run_all_reduce(const AllReduceJob& job);
// The few ratios and times that summarise all points.
nlohmann::json summarise(const std::vector<BenchPoint>& points);
// Draws the points of the first number of ranks as SVG.
std::string draw(const std::vector<BenchPoint>& points);

}  // namespace horon::bench
