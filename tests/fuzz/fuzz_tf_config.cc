#include <cstddef>
#include <cstdint>

#include "horon/base/error.h"
#include "horon/net/tf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const horon::TfConfig config = horon::parse_tf_config(
        {reinterpret_cast<const char*>(data), size}, [](const std::string&) { return true; });
    if (config.rank >= 0 && config.rank >= config.size) __builtin_trap();
  } catch (const horon::UsageError&) {
  }
  return 0;
}
