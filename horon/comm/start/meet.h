#pragma once

#include <string>
#include <vector>

#include "horon/base/job_settings.h"
#include "horon/net/store.h"

// The exchange of locations and settings between ranks before there is a communicator.
namespace horon {

// What a rank tells the others about its location: its host, and how many GPUs NCCL could use there
// (0 without the nccl part or a device runtime).
struct RankLocation {
  std::string host;
  int gpus = 0;
  std::string encode() const;
  static RankLocation decode(const std::string& text);
};

// Sends this rank's location and settings to the others through their common store, and returns the
// locations of all ranks, by rank. Throws TimeoutError naming the ranks that did not connect within
// start_timeout, and UsageError, the same on all ranks (exit code 11), for settings that must be
// equal and are not (net/compare.h).
std::vector<RankLocation> meet(int rank, int size, const JobSettings& job_settings, Store& store,
                               const RankLocation& location);

}  // namespace horon
