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

// What a rank says about itself when another waits.
struct RankState {
  std::vector<std::string> pending = {};  // names that it has submitted and that are not over
  std::string last = {};                  // name of what it finished last; empty: nothing yet
  int64_t last_ms = 0;                    // how long ago
  bool is_known = true;                   // false: it could not be asked; does not travel

  // Another one that was finished: counts if it was the later one. Empty: none.
  void note_finished(const std::string& name, Clock::time_point at);
};
std::string pack_state(const RankState& state);
RankState unpack_state(const std::string& bytes);

// The operation that this rank waits for longest.
struct LongWait {
  std::string name;
  Clock::time_point since;
  std::vector<int> ranks;  // of its set
};

// Pure: one line for people. answers[i] is of ranks[i]; nothing: it did not answer.
std::string explain_wait(const std::string& name, Milliseconds waited,
                         const std::vector<int>& ranks,
                         const std::vector<std::optional<RankState>>& answers);

// Names ranks that take much longer than the others between operations. Pure but for what it
// remembers: fed with each operation's totals (Communicator::away_us).
class StragglerWatch {
 public:
  // A line for people when a rank is slow for the second window in a row (and was not named
  // before), else empty.
  std::string add(const std::vector<uint64_t>& away_us, const std::vector<int>& ranks);

 private:
  static constexpr int kWindow = 8;  // operations
  std::vector<uint64_t> before_;
  std::vector<int> slow_;  // windows in a row
  int operations_ = 0;
};

// Watches what this rank waits for. After a second it asks the others through the store how they
// are; one that does not answer within five is taken for lost. After ten it says who has not
// submitted what it waits for. Two threads: one asks, one answers; both sleep while nothing waits.
class StallMonitor {
 public:
  struct Options {
    int rank = 0;
    Milliseconds ask_after{1000};
    Milliseconds silence{4500};
    Milliseconds warn_after{10'000};
    int store_rank = -1;  // serves the store: silent if that does not answer; -1: none of the ranks
  };
  struct Events {
    std::function<std::optional<LongWait>()> longest;  // now
    std::function<RankState()> state;                  // of this rank, now
    std::function<void(const std::string& line)> warn;
    std::function<void(const std::vector<int>& ranks)> lost;  // they are silent
  };
  StallMonitor(const Options& options, std::shared_ptr<Store> store, Events events);
  // Waits for nobody: neither for ranks that were asked, nor for a store that does not answer,
  // whose server may be the rank that was lost. A thread that waits for them outlives us; nothing
  // in `events` is called any more.
  ~StallMonitor();
  StallMonitor(const StallMonitor&) = delete;
  StallMonitor& operator=(const StallMonitor&) = delete;

  // Something was submitted. Costs nothing while the monitor is awake.
  void wake() {
    if (asleep_->load(std::memory_order_relaxed)) wake_up();
  }

 private:
  struct Watch;  // these two outlive us while they wait for others
  struct Answers;
  void wake_up();

  std::shared_ptr<Watch> watch_;
  std::atomic<bool>* asleep_;  // of the watch
  std::shared_ptr<Answers> answers_;
};

}  // namespace horon
