// What the launcher and an agent read from each other.
#include <cstddef>
#include <cstdint>

#include "horon/base/error.h"
#include "horon/launch/agent_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    horon::launch::pack(horon::launch::unpack_to_agent(bytes));
  } catch (const horon::Error&) {
  }
  try {
    horon::launch::pack(horon::launch::unpack_from_agent(bytes));
  } catch (const horon::Error&) {
  }
  return 0;
}
