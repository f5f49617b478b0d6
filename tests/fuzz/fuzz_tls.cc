// An unauthenticated peer's bytes against the server's half of the handshake: raw, or an honest
// hello with edits.
#include <cstddef>
#include <cstdint>

#include "horon/base/error.h"
#include "horon/net/tls.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using horon::Secret;
  using horon::TlsSession;
  static const Secret ours = Secret::insecure("ours");
  static const Secret theirs = Secret::insecure("theirs");
  if (size < 1) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) {
    TlsSession stranger(horon::TlsSide::kClient, theirs);
    std::string hello = stranger.take_output();
    for (size_t i = 0; i + 2 < bytes.size(); i += 3) {
      const size_t at =
          (static_cast<uint8_t>(bytes[i]) << 8 | static_cast<uint8_t>(bytes[i + 1])) % hello.size();
      hello[at] = bytes[i + 2];
    }
    bytes = hello;
  }
  TlsSession server(horon::TlsSide::kServer, ours);
  try {
    server.feed(bytes);
    server.feed(bytes);
  } catch (const horon::Error&) {
  }
  server.take_output();
  if (server.is_open() || server.is_half_open()) __builtin_trap();  // nobody gets in
  return 0;
}
