#include "horon/net/store_table.h"

#include <fmt/format.h>

#include "horon/base/error.h"
#include "horon/net/store.h"
#include "horon/net/store_key.h"

namespace horon {
namespace {

StoreReply usage(const std::string& why) {
  StoreReply reply;
  reply.status = StoreStatus::kUsage;
  reply.why = why;
  return reply;
}

}  // namespace

std::optional<StoreReply> StoreTable::answer(const StoreRequest& request, std::string& missing) {
  StoreReply reply;
  try {
    for (const std::string& key : request.keys) check_store_key(key);
    const std::string& key = request.keys.front();
    switch (request.op) {
      case StoreOp::kSet:
        if (request.value.size() > Store::kMaxValue) return usage("store: value too long");
        values_[key] = request.value;
        return reply;
      case StoreOp::kAdd: {
        const auto found = values_.find(key);
        reply.number = request.amount;
        if (found != values_.end()) reply.number += parse_counter(key, found->second);
        values_[key] = std::to_string(reply.number);
        return reply;
      }
      case StoreOp::kRemove:
        reply.number = static_cast<int64_t>(values_.erase(key));
        return reply;
      case StoreOp::kGet:
        break;
    }
    size_t bytes = 0;
    for (const std::string& wanted : request.keys) {
      const auto found = values_.find(wanted);
      if (found == values_.end()) {
        missing = wanted;
        return std::nullopt;
      }
      bytes += found->second.size() + sizeof(uint32_t);
      if (bytes + 1024 > kStoreFrame) return usage("store: too many bytes for one answer");
      reply.values.push_back(found->second);
    }
    return reply;
  } catch (const UsageError& error) {
    return usage(error.what());
  }
}

}  // namespace horon
