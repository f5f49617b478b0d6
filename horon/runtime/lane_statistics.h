#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horon/comm/communicator.h"
#include "horon/runtime/counters.h"
#include "horon/runtime/stall.h"
#include "horon/runtime/submission.h"
#include "horon/runtime/trace.h"

namespace horon {

// Statistics of one lane: counters, traces, and time spent waiting for each rank. Owned by
// its lane. Not thread-safe: the lane calls it with its lock held.
class LaneStatistics {
 public:
  struct Options {
    uint8_t lane = 0;                                   // in traces
    std::shared_ptr<Recorder> recorder;                 // may be null
    std::function<void(const std::string& line)> warn;  // about stragglers, on rank 0; may be null
  };
  explicit LaneStatistics(Options options) : options_(std::move(options)) {}

  // A transfer that carried these items over `comm` has ended; `failed`: with a mismatch.
  void note_transfer(const std::vector<Submission>& items, uint64_t bytes, int64_t begun_ns,
                     bool failed, const Communicator& comm);
  // A transfer has failed and ended the lane.
  void note_death(const std::vector<Submission>& items, uint64_t bytes, int64_t begun_ns) const;
  void note_success() { ++counters_.operations; }  // of one operation
  void note_copies(uint64_t bytes) { counters_.bytes_copied += bytes; }
  void note_control(uint64_t messages) { counters_.control_messages += messages; }

  const RuntimeCounters& counters() const { return counters_; }

 private:
  void note_waits(const Communicator& comm);
  void trace(const std::vector<Submission>& items, uint64_t bytes, int64_t begun_ns,
             bool failed) const;

  Options options_;
  RuntimeCounters counters_;
  StragglerWatch stragglers_;
  std::vector<uint64_t> away_us_;  // by member, after the last transfer
};

}  // namespace horon
