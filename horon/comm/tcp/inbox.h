#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "horon/comm/tcp/piece.h"
#include "horon/net/link.h"

namespace horon::tcp {

// Receives the frames of one peer and finds the message to which each belongs. Bytes of a flow for
// which nothing is posted yet are kept, at most kUnposted of them. Throws Error for a frame beyond
// the credit, received twice, or across two messages, and if too many bytes would be kept: a
// correct peer causes none of this. Pieces belong to the caller and must live until they are done
// or their flow is closed. Events are called from within the call that causes them. Pure: no
// sockets, no threads; one thread at a time.
class Inbox final : public FrameSink {
 public:
  struct Events {
    std::function<void(Piece&)> moved;                           // some or all of it was received
    std::function<void(uint64_t flow, uint64_t offset)> credit;  // from the peer
    std::function<void()> leave;
  };
  explicit Inbox(Events events) : events_(std::move(events)) {}

  // The next message of the flow is received into the piece; bytes that were kept are copied at
  // once. A piece without memory gets memory of the inbox, valid until the next such piece of the
  // flow.
  void post(uint64_t flow, Piece& piece);
  // The credit to send to the peer now; nothing while it has enough.
  std::optional<uint64_t> due_credit(uint64_t flow);
  // Forgets the flow; frames of it that are being received are dropped.
  void close(uint64_t flow);

  std::byte* provide(const FrameHeader& header) override;
  void arrived(const FrameHeader& header) override;

 private:
  struct Kept {
    std::unique_ptr<std::byte[]> data;
    uint64_t bytes = 0;
    bool is_complete = false;
  };
  struct Flow {
    std::deque<Piece*> posted;          // not complete, by offset
    uint64_t posted_end = 0;            // offset after the last message that was posted
    uint64_t told = kUnposted;          // credit that was sent to the peer
    uint64_t claimed = 0;               // all frames before this were or are being received
    std::map<uint64_t, uint64_t> gaps;  // begin and end of what is claimed after a gap
    std::map<uint64_t, Kept> kept;      // by offset: received before it was posted
    Kept lent;                          // to the last piece without memory
  };
  static constexpr size_t kMostFlows = 1U << 16;
  static constexpr size_t kMostSpare = 4;
  static constexpr uint64_t kMostKept = 256U << 20;  // bytes of all flows

  std::unique_ptr<std::byte[]> memory(uint64_t bytes);
  void give_back(Kept& kept);
  // True if the piece is complete: it was kept as a whole.
  bool lend(Flow& flow, Piece& piece);

  static void claim(Flow& flow, uint64_t begin, uint64_t end);
  // The posted message with all of these bytes; null if they are in none.
  static Piece* piece_at(const Flow& flow, uint64_t begin, uint64_t end);
  void add(Flow& flow, Piece& piece, uint64_t bytes);
  void control(const FrameHeader& header);

  Events events_;
  std::map<uint64_t, Flow> flows_;
  uint64_t kept_bytes_ = 0;
  // Memory of frames that were being received when their flow was closed, by flow and offset.
  std::map<std::pair<uint64_t, uint64_t>, std::unique_ptr<std::byte[]>> orphans_;
  std::vector<std::unique_ptr<std::byte[]>> spare_;  // kUnposted bytes each, to use again
};

}  // namespace horon::tcp
