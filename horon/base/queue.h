#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace horon {

// An unbounded queue between threads. pop() waits for an item; after close() it returns the
// remaining items, then nothing. Thread-safe.
template <typename T>
class BlockingQueue {
 public:
  // False if the queue is closed; the item is then dropped.
  bool push(T item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // Waits for an item; nothing once the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    std::optional<T> item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  std::mutex mutex_;  // guards all below
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace horon
