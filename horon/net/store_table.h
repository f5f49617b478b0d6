#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "horon/net/store_message.h"

namespace horon {

// What a store server holds. No waiting, no sockets.
class StoreTable {
 public:
  // Answers now, or nothing: then `missing` is the first key that the request waits for. A request
  // that breaks the store's rules gets a reply that says so.
  std::optional<StoreReply> answer(const StoreRequest& request, std::string& missing);

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace horon
