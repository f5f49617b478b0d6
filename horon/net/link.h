#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horon/base/fd.h"
#include "horon/net/seal.h"

// An authenticated TCP connection that carries frames, encrypted or plain.
namespace horon {

// Describes a payload. The fields have a meaning only for the users of a link, which checks nothing
// but sizes.
struct FrameHeader {
  uint64_t flow = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;  // of the payload
  uint32_t kind = 0;
};
static_assert(sizeof(FrameHeader) == 24);

struct Frame {
  FrameHeader header;
  const std::byte* data = nullptr;
};

// Receives the frames of a link.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Provides memory for a payload of header.bytes. Its contents are undefined before arrived().
  // Throws Error for an unexpected frame: the link is then unusable.
  virtual std::byte* provide(const FrameHeader& header) = 0;
  // The payload is complete and, on an encrypted link, verified.
  virtual void arrived(const FrameHeader& header) = 0;
};

// The secrets of an encrypted link, one for each direction, 32 bytes.
struct LinkSecrets {
  std::string outgoing;
  std::string incoming;
  uint64_t records_per_key = kRecordsPerKey;
  static constexpr uint64_t kRecordsPerKey = 1U << 18;  // 64 GB of the longest records
};

// Frames are sent in records. A record is one long frame, which is sent from and received into the
// callers' memory without a copy (except for the encryption), or several short ones. No call
// blocks. Errors are final: IoError if the connection is lost, Error if a received record is
// damaged or invalid. Owns the socket. One thread at a time.
class Link {
 public:
  static constexpr size_t kShortBytes = 16U << 10;          // of all frames in a shared record
  static constexpr size_t kMostBytes = (256U << 10) - 64;   // of the payload of a long frame
  static constexpr size_t kOverhead = sizeof(FrameHeader);  // of a frame in a record

  // `secrets`: absent on a plain link. The socket is non-blocking, with nothing read or written.
  Link(Fd socket, const std::optional<LinkSecrets>& secrets);
  int fd() const { return socket_.get(); }
  bool is_private() const { return sealer_ != nullptr; }

  // True while records are not fully written.
  bool is_sending() const { return out_at_ < out_end_ || tail_at_ < tail_.size(); }
  // True if another record can be begun: nothing is being sent, or short records of which nothing
  // was written yet.
  bool can_begin() const;
  // Begins the next record: one frame of at most kMostBytes, or several that together, with
  // kOverhead each, are at most kShortBytes. Their memory is read until is_sending() ends. What is
  // begun together is written by one system call.
  void begin(std::span<const Frame> frames);
  // Writes what the socket accepts; true if all records are written.
  bool send_some();
  uint64_t bytes_written() const { return bytes_written_; }
  // receive() failed because the peer closed the connection, and everything before was read.
  bool is_at_end() const { return is_at_end_; }

  // Reads what has arrived, up to about `budget` bytes, and passes it to `sink`; the number of
  // bytes read.
  size_t receive(FrameSink& sink, size_t budget);

  // Seconds spent with encryption.
  double seconds_sealing() const { return seconds_sealing_; }

 private:
  enum class Await { kWord, kShortBody, kLongHeader, kLongBody, kTag };

  void append(const void* data, size_t bytes);
  // The number of bytes read; `is_drained`: there are no more for now.
  size_t read_more(size_t budget, bool& is_drained);
  // Handles what was read; false if more is needed.
  bool advance(FrameSink& sink);
  void begin_record(uint32_t word);
  void deliver_short(FrameSink& sink);
  void begin_long(FrameSink& sink);
  void take_long();
  size_t held() const { return in_end_ - in_begin_; }
  const std::byte* held_bytes() const { return in_.get() + in_begin_; }

  Fd socket_;
  std::unique_ptr<Seal> sealer_;
  std::unique_ptr<Seal> opener_;
  double seconds_sealing_ = 0;
  uint64_t bytes_written_ = 0;
  bool is_at_end_ = false;

  std::unique_ptr<std::byte[]> out_;  // the records, or their beginning
  size_t out_at_ = 0;
  size_t out_end_ = 0;
  std::span<const std::byte> tail_;  // plain long frames: the caller's memory
  size_t tail_at_ = 0;

  std::unique_ptr<std::byte[]> in_;  // read and not yet handled
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  Await await_ = Await::kWord;
  size_t wanted_ = sizeof(uint32_t);  // bytes of what is awaited
  FrameHeader header_;                // of the long frame that is being received
  std::byte* payload_ = nullptr;      // and its memory
  size_t payload_at_ = 0;
  bool in_long_ = false;           // the last record was a long one
  std::vector<std::byte> opened_;  // a short record, decrypted
};

}  // namespace horon
