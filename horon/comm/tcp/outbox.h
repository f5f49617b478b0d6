#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "horon/comm/tcp/piece.h"
#include "horon/net/link.h"

namespace horon::tcp {

// A record to send: its frames and the messages they belong to (null: none, as for a credit).
struct Load {
  std::vector<Frame> frames;
  std::vector<Piece*> pieces;
  void clear() { frames.clear(), pieces.clear(); }
  void append(const Load& other) {
    frames.insert(frames.end(), other.frames.begin(), other.frames.end());
    pieces.insert(pieces.end(), other.pieces.begin(), other.pieces.end());
  }
};

// What is to be sent to one peer, and in which order: first credits; then messages of at most
// kUrgentBytes, flow by flow; then the long ones, one frame of each flow in turn. Order is kept
// within a flow, not between flows. A flow sends no more than the peer's credit allows. Pieces
// belong to the caller. Pure: no sockets, no threads; one thread at a time.
class Outbox {
 public:
  static constexpr uint64_t kUrgentBytes = 16U << 10;

  // `long_frame`: bytes of a frame of a long message.
  explicit Outbox(uint64_t long_frame) : long_frame_(long_frame) {}

  // Appends to the piece's flow and sets the piece's offset.
  void post(uint64_t flow, Piece& piece);
  // The peer accepts bytes of the flow up to `offset`.
  void allow(uint64_t flow, uint64_t offset);
  // Sends this credit to the peer; replaces one of the flow that was not sent yet.
  void credit(uint64_t flow, uint64_t offset);
  void leave();
  void close(uint64_t flow);

  // True if take() would return frames.
  bool has_load(bool long_only) const;
  // The next record; `long_only`: only frames of long messages (for further sockets, so that the
  // first one has less to send).
  void take(Load& load, bool long_only);

 private:
  struct Flow {
    std::deque<Piece*> waiting;  // not completely put into frames
    uint64_t next_offset = 0;
    uint64_t allowed = kUnposted;
  };
  static bool is_long(const Piece& piece) { return piece.bytes > kUrgentBytes; }
  // Bytes of the flow's first message that may be sent now.
  static uint64_t ready_bytes(const Flow& flow);
  static void pick(uint64_t id, Flow& flow, uint64_t bytes, Load& load);
  void take_short(Load& load);

  uint64_t long_frame_;
  std::map<uint64_t, Flow> flows_;
  uint64_t last_long_ = 0;  // flow of the last long frame
  std::map<uint64_t, uint64_t> credits_;
  bool leaves_ = false;
};

}  // namespace horon::tcp
