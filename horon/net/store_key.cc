#include "horon/net/store_key.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/net/store.h"

namespace horon {

void check_store_key(const std::string& key) {
  const bool printable =
      std::all_of(key.begin(), key.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (key.empty() || key.size() > Store::kMaxKey || !printable) {
    throw UsageError(fmt::format("store: a key of {} bytes is not 1 to {} printable characters",
                                 key.size(), Store::kMaxKey));
  }
}

int64_t parse_counter(const std::string& key, const std::string& value) {
  try {
    size_t used = 0;
    const int64_t number = std::stoll(value, &used);
    if (used == value.size()) return number;
  } catch (const std::exception&) {  // not a number at all: same answer below
  }
  throw UsageError(
      fmt::format("store: '{}' holds {} bytes that are not a number", key, value.size()));
}

}  // namespace horon
