#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "horon/comm/tcp/piece.h"
#include "horon/net/link.h"

namespace horon::tcp {

// A record to be: its frames, and whose they are (null: nobody's, a credit).
struct Load {
  std::vector<Frame> frames;
  std::vector<Piece*> pieces;
  void clear() { frames.clear(), pieces.clear(); }
  void append(const Load& other) {
    frames.insert(frames.end(), other.frames.begin(), other.frames.end());
    pieces.insert(pieces.end(), other.pieces.begin(), other.pieces.end());
  }
};

// What is to be sent to one peer, and in which order. Credits go first; then messages of at most
// kUrgentBytes, stream by stream; then the long ones, one frame of each stream in turn. Order is
// kept within a stream, not between streams. A stream sends no more than the peer has room for.
// Pure: no sockets, no threads.
class Outbox {
 public:
  static constexpr uint64_t kUrgentBytes = 16U << 10;

  // `long_frame`: bytes of a frame of a long message.
  explicit Outbox(uint64_t long_frame) : long_frame_(long_frame) {}

  // Appends to the piece's stream and sets the piece's offset.
  void post(uint64_t stream, Piece& piece);
  // The peer takes bytes of the stream up to `offset`.
  void allow(uint64_t stream, uint64_t offset);
  // To be told to the peer; replaces an older one of the stream that was not yet sent.
  void credit(uint64_t stream, uint64_t offset);
  void leave();
  void close(uint64_t stream);

  // True if take() would give something.
  bool has_load(bool long_only) const;
  // The next record; `long_only`: only frames of long messages (for further sockets, so that the
  // first one stays free).
  void take(Load& load, bool long_only);

 private:
  struct Stream {
    std::deque<Piece*> waiting;  // not fully picked
    uint64_t next_offset = 0;
    uint64_t allowed = kUnposted;
  };
  static bool is_long(const Piece& piece) { return piece.bytes > kUrgentBytes; }
  // Bytes of the stream's first message that may go now.
  static uint64_t ready_bytes(const Stream& stream);
  static void pick(uint64_t id, Stream& stream, uint64_t bytes, Load& load);
  void take_short(Load& load);

  uint64_t long_frame_;
  std::map<uint64_t, Stream> streams_;
  uint64_t last_long_ = 0;  // stream of the last long frame
  std::map<uint64_t, uint64_t> credits_;
  bool leaves_ = false;
};

}  // namespace horon::tcp
