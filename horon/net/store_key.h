#pragma once

#include <cstdint>
#include <string>

namespace horon {

// The number that a counter key holds; UsageError if it holds something else.
int64_t parse_counter(const std::string& key, const std::string& value);

// UsageError unless the key is one that a store takes.
void check_store_key(const std::string& key);

}  // namespace horon
