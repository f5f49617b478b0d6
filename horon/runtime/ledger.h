#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "horon/comm/communicator.h"
#include "horon/runtime/counters.h"
#include "horon/runtime/stall.h"
#include "horon/runtime/trace.h"

namespace horon {

// Records what the operations of a communicator outside any lane do: for stall reports, traces and
// counters. They are identified by name and number, "evaluation #17". Joins are not recorded.
// Shares the recorder. Thread-safe; `on_begin` is called on the thread that starts the operation.
class Ledger {
 public:
  struct Options {
    uint8_t lane = 0;                    // in traces
    std::shared_ptr<Recorder> recorder;  // may be null
    std::function<void()> on_begin;      // may be null
  };
  explicit Ledger(Options options) : options_(std::move(options)) {}

  // Starts recording. The ledger outlives the operations of `comm`.
  void watch(Communicator& comm);

  // The running operation, if any: its name and when it began.
  std::optional<std::pair<std::string, Clock::time_point>> oldest() const;
  // As Lane::describe.
  void describe(RankState& state) const;
  RuntimeCounters counters() const;

 private:
  void begin(const Request& request);
  void end(const Request& request, bool failed);

  Options options_;
  mutable std::mutex mutex_;  // guards everything below
  uint64_t begun_ = 0;
  std::string running_;  // one at a time; empty: none
  Clock::time_point since_;
  std::string last_;
  Clock::time_point last_at_;
  RuntimeCounters counters_;
};

}  // namespace horon
