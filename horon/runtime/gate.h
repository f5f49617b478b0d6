#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "horon/base/time.h"

namespace horon {

// Lets urgent operations of a rank overtake bulk ones between two chunks. A bulk operation waits
// for an urgent one for a short time, and once only: other ranks may need the bulk one first, and
// nobody may wait in a circle. Thread-safe.
class Gate {
 public:
  static constexpr auto kPatience = Milliseconds(20);

  void begin_urgent();
  void end_urgent();
  // Between chunks: until no urgent operation is going on.
  void make_way();
  // How often there was one to wait for.
  uint64_t times_made_way() const { return times_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> running_{0};
  std::atomic<uint64_t> times_{0};
  std::mutex mutex_;  // guards all below
  std::condition_variable ended_;
  uint64_t begun_ = 0;      // urgent operations so far
  uint64_t impatient_ = 0;  // `begun_` when patience was lost
};

}  // namespace horon
