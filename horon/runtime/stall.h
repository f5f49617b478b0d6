#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "horon/base/time.h"
#include "horon/net/store.h"

namespace horon {

// What a rank reports about itself when another one waits.
struct RankState {
  std::vector<std::string> pending = {};  // submitted and not ended
  std::string last = {};                  // the operation that finished last; empty: none yet
  int64_t last_ms = 0;                    // how long ago it finished
  bool is_known = true;                   // false: the rank could not be asked; not transmitted

  // Records that `name` finished at `at`, if that is later than `last`. An empty name is ignored.
  void note_finished(const std::string& name, Clock::time_point at);
};
std::string pack_state(const RankState& state);
RankState unpack_state(const std::string& bytes);

// The operation that this rank has waited for longest.
struct LongWait {
  std::string name;
  Clock::time_point since;
  std::vector<int> ranks;  // of its set
};

// One line of text that explains a wait. answers[i] belongs to ranks[i]; empty: no answer. Pure.
std::string explain_wait(const std::string& name, Milliseconds waited,
                         const std::vector<int>& ranks,
                         const std::vector<std::optional<RankState>>& answers);

// Finds stragglers: ranks that take much longer than the others between operations. Fed with the
// totals after each operation (Communicator::away_us); no clock, no threads. Not thread-safe.
class StragglerWatch {
 public:
  // A message when a rank was slow for the second window in a row (and was not named before);
  // otherwise empty.
  std::string add(const std::vector<uint64_t>& away_us, const std::vector<int>& ranks);

 private:
  static constexpr int kWindow = 8;  // operations
  std::vector<uint64_t> before_;
  std::vector<int> slow_;  // consecutive slow windows
  int operations_ = 0;
};

// Watches what this rank waits for. After a second (ask_after) it asks the other ranks through the
// store for their state; one that does not answer (silence) is considered lost. After ten seconds
// (warn_after) it names the ranks that have not submitted the awaited operation. It has two
// threads: one asks, one answers; both sleep while nothing waits. Owned by the Runtime;
// thread-safe.
class StallMonitor {
 public:
  struct Options {
    int rank = 0;
    Milliseconds ask_after{1000};
    Milliseconds silence{4500};
    Milliseconds warn_after{10'000};
    int store_rank = -1;  // rank that serves the store: silent if the store is; -1: no rank
  };
  // Called by the monitor's threads.
  struct Events {
    std::function<std::optional<LongWait>()> longest;  // the longest wait of this rank
    std::function<RankState()> state;                  // the state of this rank
    std::function<void(const std::string& line)> warn;
    std::function<void(const std::vector<int>& ranks)> lost;  // these ranks are silent
  };
  StallMonitor(const Options& options, std::shared_ptr<Store> store, Events events);
  // Does not wait for ranks that were asked, and at most a second for a store that does not answer,
  // whose server may be the lost rank. A thread that still waits for them outlives the monitor, but
  // calls nothing in `events` any more.
  ~StallMonitor();
  StallMonitor(const StallMonitor&) = delete;
  StallMonitor& operator=(const StallMonitor&) = delete;

  // Call after each submission. Costs almost nothing while the monitor is awake.
  void wake() {
    if (asleep_->load(std::memory_order_relaxed)) wake_up();
  }

 private:
  struct Watch;  // these two may outlive the monitor while they wait for others
  struct Answers;
  void wake_up();

  std::shared_ptr<Watch> watch_;
  std::atomic<bool>* asleep_;  // member of *watch_
  std::shared_ptr<Answers> answers_;
};

}  // namespace horon
