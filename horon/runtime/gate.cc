#include "horon/runtime/gate.h"

namespace horon {

void Gate::begin_urgent() {
  const std::lock_guard lock(mutex_);
  ++begun_;
  running_.fetch_add(1, std::memory_order_relaxed);
}

void Gate::end_urgent() {
  {
    const std::lock_guard lock(mutex_);
    running_.fetch_sub(1, std::memory_order_relaxed);
  }
  ended_.notify_all();
}

void Gate::make_way() {
  if (running_.load(std::memory_order_relaxed) == 0) return;
  std::unique_lock lock(mutex_);
  const auto is_free = [&] { return running_.load(std::memory_order_relaxed) == 0; };
  if (is_free() || impatient_ == begun_) return;
  times_.fetch_add(1, std::memory_order_relaxed);
  if (!ended_.wait_for(lock, kPatience, is_free)) impatient_ = begun_;
}

}  // namespace horon
