#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "horon/base/error.h"
#include "horon/net/store.h"
#include "horon/net/store_key.h"

namespace horon {
namespace {

class MemoryStore final : public Store {
 private:
  void do_set(const std::string& key, const std::string& value, Deadline) override {
    {
      const std::lock_guard lock(mutex_);
      values_[key] = value;
    }
    changed_.notify_all();
  }

  std::string do_get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return values_.contains(key); };
    if (!changed_.wait_for(lock, deadline.left(), there)) {
      throw TimeoutError(fmt::format("store: '{}' was not set before the deadline", key));
    }
    return values_[key];
  }

  int64_t do_add(const std::string& key, int64_t amount, Deadline) override {
    int64_t sum = amount;
    {
      const std::lock_guard lock(mutex_);
      const auto found = values_.find(key);
      if (found != values_.end()) sum += parse_counter(key, found->second);
      values_[key] = std::to_string(sum);
    }
    changed_.notify_all();
    return sum;
  }

  bool do_remove(const std::string& key, Deadline) override {
    const std::lock_guard lock(mutex_);
    return values_.erase(key) != 0;
  }

  std::mutex mutex_;  // guards values_
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace horon
