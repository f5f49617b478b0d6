#pragma once

#include <cstddef>
#include <cstdint>

namespace horon::tcp {

struct Flight;

// One message of an exchange, on its way: memory of the caller, and how much of it is through.
// Messages of one stream between two ranks are one sequence of bytes; `offset` is where this one
// begins. It lives as long as its flight.
struct Piece {
  int peer = 0;  // rank of the job
  bool is_send = false;
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint64_t offset = 0;
  uint64_t picked = 0;  // sends: bytes that were put into frames
  uint64_t moved = 0;   // bytes that were written, or received and verified
  Flight* flight = nullptr;
  size_t index = 0;  // of the message in its exchange
  bool is_done() const { return moved == bytes; }
};

// What a frame is (FrameHeader::kind).
enum class FrameKind : uint32_t {
  kData = 1,    // bytes of a stream
  kCredit = 2,  // no payload: the receiver takes bytes of this stream up to `offset`
  kLeave = 3,   // no payload: this rank closes its transport, and nothing is wrong
};

// So many bytes of a stream may be sent before the receiver has said where they go; it keeps them.
constexpr uint64_t kUnposted = 256U << 10;

}  // namespace horon::tcp
