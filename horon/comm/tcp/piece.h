#pragma once

#include <cstddef>
#include <cstdint>

namespace horon::tcp {

struct Flight;

// One message of an exchange: the caller's memory, and how many of its bytes were moved.
// Messages of one flow in one direction are one sequence of bytes; `offset` is where this one
// begins. Lives as long as its flight.
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
  kData = 1,    // bytes of a flow
  kCredit = 2,  // no payload: the receiver accepts bytes of this flow up to `offset`
  kLeave = 3,   // no payload: this rank closes its transport, without a failure
};

// This many bytes of a flow may be sent before the receiver has posted them; it keeps them.
constexpr uint64_t kUnposted = 256U << 10;

}  // namespace horon::tcp
