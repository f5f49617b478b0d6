#include "horon/net/store.h"

#include <fmt/format.h>

#include "horon/base/error.h"
#include "horon/net/store_key.h"

namespace horon {

void Store::set(const std::string& key, const std::string& value, Deadline deadline) {
  check_store_key(key);
  require(value.size() <= kMaxValue,
          fmt::format("store: value of '{}' has {} bytes, limit {}", key, value.size(), kMaxValue));
  do_set(key, value, deadline);
}

std::string Store::get(const std::string& key, Deadline deadline) {
  check_store_key(key);
  return do_get(key, deadline);
}

std::vector<std::string> Store::get_all(const std::vector<std::string>& keys, Deadline deadline) {
  for (const std::string& key : keys) check_store_key(key);
  return keys.empty() ? std::vector<std::string>() : do_get_all(keys, deadline);
}

void Store::wait(const std::vector<std::string>& keys, Deadline deadline) {
  get_all(keys, deadline);
}

std::vector<std::string> Store::do_get_all(const std::vector<std::string>& keys,
                                           Deadline deadline) {
  std::vector<std::string> values;
  for (const std::string& key : keys) values.push_back(do_get(key, deadline));
  return values;
}

int64_t Store::add(const std::string& key, int64_t amount, Deadline deadline) {
  check_store_key(key);
  return do_add(key, amount, deadline);
}

bool Store::remove(const std::string& key, Deadline deadline) {
  check_store_key(key);
  return do_remove(key, deadline);
}

namespace {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> inner, std::string prefix)
      : inner_(std::move(inner)), prefix_(std::move(prefix)) {}

  std::string own_address() override { return inner_->own_address(); }

 private:
  void do_set(const std::string& key, const std::string& value, Deadline deadline) override {
    inner_->set(prefix_ + key, value, deadline);
  }
  std::string do_get(const std::string& key, Deadline deadline) override {
    return inner_->get(prefix_ + key, deadline);
  }
  std::vector<std::string> do_get_all(const std::vector<std::string>& keys,
                                      Deadline deadline) override {
    std::vector<std::string> prefixed;
    for (const std::string& key : keys) prefixed.push_back(prefix_ + key);
    return inner_->get_all(prefixed, deadline);
  }
  int64_t do_add(const std::string& key, int64_t amount, Deadline deadline) override {
    return inner_->add(prefix_ + key, amount, deadline);
  }
  bool do_remove(const std::string& key, Deadline deadline) override {
    return inner_->remove(prefix_ + key, deadline);
  }

  std::shared_ptr<Store> inner_;
  std::string prefix_;
};

}  // namespace

std::shared_ptr<Store> make_prefix_store(std::shared_ptr<Store> inner, const std::string& prefix) {
  check_store_key(prefix);
  return std::make_shared<PrefixStore>(std::move(inner), prefix);
}

}  // namespace horon
