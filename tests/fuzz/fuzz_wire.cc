// Frames and the store's messages, as a member of the job could send them.
#include <cstddef>
#include <cstdint>

#include "horon/base/error.h"
#include "horon/net/store_message.h"
#include "horon/net/store_table.h"
#include "horon/net/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  horon::StoreTable table;
  try {
    horon::FrameReader reader(4096);
    // In two pieces: a frame may be cut anywhere.
    reader.feed(bytes.substr(0, size / 2));
    reader.feed(bytes.substr(size / 2));
    while (const auto frame = reader.next()) {
      const horon::StoreRequest request = horon::unpack_request(*frame);
      if (horon::pack(request) != *frame) __builtin_trap();
      std::string missing;
      table.answer(request, missing);
    }
  } catch (const horon::Error&) {
  }
  try {
    const horon::StoreReply reply = horon::unpack_reply(bytes);
    if (horon::pack(reply) != bytes) __builtin_trap();
  } catch (const horon::Error&) {
  }
  return 0;
}
