#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "horon/base/time.h"

namespace horon {

// Lets urgent operations of a rank overtake bulk ones between two chunks. A bulk operation waits
// for an urgent one only briefly (kPatience) and only once: other ranks may need the bulk operation
// first, and waits must not form a cycle. Shared by the lanes and the sequence of one set of ranks.
// Thread-safe.
class Gate {
 public:
  static constexpr auto kPatience = Milliseconds(20);

  void begin_urgent();
  void end_urgent();
  // Call between chunks: waits until no urgent operation runs, at most kPatience.
  void make_way();
  // How often make_way() found an urgent operation.
  uint64_t times_made_way() const { return times_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> running_{0};
  std::atomic<uint64_t> times_{0};
  std::mutex mutex_;  // guards everything below
  std::condition_variable ended_;
  uint64_t begun_ = 0;      // urgent operations so far
  uint64_t impatient_ = 0;  // `begun_` when a wait timed out
};

}  // namespace horon
