// Lists of hosts and addresses; what is accepted must be harmless.
#include <cstddef>
#include <cstdint>

#include "horon/base/error.h"
#include "horon/launch/host_list.h"
#include "horon/net/socket.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const auto& host : horon::launch::parse_hosts(text)) {
      if (host.name.front() == '-' ||
          host.name.find_first_of(" ;|&$`'\"\\\n<>(){}*?!#~=/") != host.name.npos || host.slots < 1)
        __builtin_trap();
    }
  } catch (const horon::UsageError&) {
  }
  try {
    horon::launch::parse_hostfile(text, "file");
  } catch (const horon::UsageError&) {
  }
  try {
    const auto endpoints = horon::parse_endpoints(text);
    if (horon::parse_endpoints(horon::format_endpoints(endpoints)) != endpoints) __builtin_trap();
  } catch (const horon::UsageError&) {
  }
  return 0;
}
