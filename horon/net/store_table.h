#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "horon/net/store_message.h"

namespace horon {

// The content of a store server. No waiting, no sockets. One thread at a time.
class StoreTable {
 public:
  // The reply, or nothing: then `missing` is the first key that the request waits for. An invalid
  // request gets a reply that says so.
  std::optional<StoreReply> answer(const StoreRequest& request, std::string& missing);

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace horon
