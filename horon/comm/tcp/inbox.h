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

// What comes from one peer: finds each frame's place. Bytes of a stream for which nothing is posted
// yet are kept, at most kUnposted of them. A frame that is not in its place (beyond the credit,
// twice, across two messages), or more kept bytes than any job of ours has, throw Error: no peer of
// ours sends that. Pure: no sockets, no threads.
class Inbox final : public FrameSink {
 public:
  struct Events {
    std::function<void(Piece&)> moved;  // some of it has come, perhaps all
    std::function<void(uint64_t stream, uint64_t offset)> credit;  // from the peer
    std::function<void()> leave;
  };
  explicit Inbox(Events events) : events_(std::move(events)) {}

  // The next message of the piece's stream goes there. What has come already is moved at once. A
  // piece without memory gets ours, which is valid until the next such piece of the stream.
  void post(uint64_t stream, Piece& piece);
  // The credit to tell the peer now; nothing if it has enough for a while.
  std::optional<uint64_t> due_credit(uint64_t stream);
  void close(uint64_t stream);

  std::byte* place(const FrameHeader& header) override;
  void arrived(const FrameHeader& header) override;

 private:
  struct Kept {
    std::unique_ptr<std::byte[]> data;
    uint64_t bytes = 0;
    bool is_complete = false;
  };
  struct Stream {
    std::deque<Piece*> posted;          // not complete, by offset
    uint64_t posted_end = 0;            // offset behind the last message that was posted
    uint64_t told = kUnposted;          // credit that the peer has
    uint64_t claimed = 0;               // all frames before this have come or are coming
    std::map<uint64_t, uint64_t> gaps;  // begin and end of what is claimed behind a gap
    std::map<uint64_t, Kept> kept;      // by offset: came before it was posted
    Kept lent;                          // to the last piece without memory
  };
  static constexpr size_t kMostStreams = 1U << 16;
  static constexpr size_t kMostSpare = 4;
  static constexpr uint64_t kMostKept = 256U << 20;  // bytes of all streams

  std::unique_ptr<std::byte[]> memory(uint64_t bytes);
  void give_back(Kept& kept);
  // True if the piece is complete: it was kept as a whole.
  bool lend(Stream& stream, Piece& piece);

  static void claim(Stream& stream, uint64_t begin, uint64_t end);
  // The posted message with all of these bytes; null if they are in none.
  static Piece* piece_at(const Stream& stream, uint64_t begin, uint64_t end);
  void add(Stream& stream, Piece& piece, uint64_t bytes);
  void control(const FrameHeader& header);

  Events events_;
  std::map<uint64_t, Stream> streams_;
  uint64_t kept_bytes_ = 0;
  // Frames that were coming when their stream was closed, by stream and offset.
  std::map<std::pair<uint64_t, uint64_t>, std::unique_ptr<std::byte[]>> orphans_;
  std::vector<std::unique_ptr<std::byte[]>> spare_;  // kUnposted bytes each, to use again
};

}  // namespace horon::tcp
