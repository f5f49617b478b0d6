#include "horon/net/link.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "horon/base/error.h"
#include "horon/base/time.h"

namespace horon {
namespace {

constexpr uint32_t kLong = 1U << 31;  // bit of a record's first word: one long frame
constexpr size_t kWord = sizeof(uint32_t);
constexpr size_t kInBytes = 128U << 10;
// Plain long payloads are read directly into their memory: little of the next one is read ahead.
constexpr size_t kAhead = 4U << 10;
constexpr size_t kMostBegun = 2U << 10;  // bytes of short records before another one

[[noreturn]] void refuse(const char* what) {
  throw Error(fmt::format("received {}", what), ExitCode::kPeer);
}

[[noreturn]] void broken(const char* doing) {
  throw IoError(fmt::format("{}: {}", doing, std::strerror(errno)), ExitCode::kPeer);
}

}  // namespace

Link::Link(Fd socket, const std::optional<LinkSecrets>& secrets)
    : socket_(std::move(socket)), in_(std::make_unique_for_overwrite<std::byte[]>(kInBytes)) {
  if (!secrets) return;
  sealer_ = std::make_unique<Seal>(Seal::Way::kSeal, secrets->outgoing, secrets->records_per_key);
  opener_ = std::make_unique<Seal>(Seal::Way::kOpen, secrets->incoming, secrets->records_per_key);
}

// Encrypted on its way into the record.
void Link::append(const void* data, size_t bytes) {
  if (sealer_) {
    sealer_->update(data, out_.get() + out_end_, bytes);
  } else if (bytes != 0) {
    std::memcpy(out_.get() + out_end_, data, bytes);
  }
  out_end_ += bytes;
}

bool Link::can_begin() const {
  return !is_sending() || (out_at_ == 0 && tail_.empty() && out_end_ <= kMostBegun);
}

void Link::begin(std::span<const Frame> frames) {
  size_t body = 0;
  for (const Frame& frame : frames) body += kOverhead + frame.header.bytes;
  const bool is_long = body > kShortBytes;
  if (!can_begin() || frames.empty() || (is_long && frames.size() > 1) ||
      body > kOverhead + kMostBytes)
    throw Error("link: frames do not fit into a record");
  const Stopwatch sealing;
  const auto word = static_cast<uint32_t>(body) | (is_long ? kLong : 0);
  if (!out_)
    out_ = std::make_unique_for_overwrite<std::byte[]>(
        kMostBegun + kWord + kOverhead + (sealer_ ? kMostBytes : kShortBytes) + Seal::kTagBytes);
  if (!is_sending()) {
    out_at_ = out_end_ = 0;
    tail_ = {};
    tail_at_ = 0;
  }
  std::memcpy(out_.get() + out_end_, &word, kWord);
  out_end_ += kWord;
  if (sealer_) sealer_->begin(word);
  for (const Frame& frame : frames) {
    append(&frame.header, sizeof(frame.header));
    if (is_long && !sealer_) {
      tail_ = {frame.data, frame.header.bytes};
    } else {
      append(frame.data, frame.header.bytes);
    }
  }
  if (!sealer_) return;
  sealer_->finish(out_.get() + out_end_);
  out_end_ += Seal::kTagBytes;
  seconds_sealing_ += sealing.seconds();
}

bool Link::send_some() {
  while (is_sending()) {
    iovec parts[2] = {{out_.get() + out_at_, out_end_ - out_at_},
                      {const_cast<std::byte*>(tail_.data()) + tail_at_, tail_.size() - tail_at_}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = tail_.empty() ? 1 : 2;
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (sent < 0) broken("send");
    bytes_written_ += static_cast<uint64_t>(sent);
    const size_t first = std::min(static_cast<size_t>(sent), out_end_ - out_at_);
    out_at_ += first;
    tail_at_ += static_cast<size_t>(sent) - first;
  }
  return true;
}

// A long payload is read into its memory, what follows it into the buffer.
size_t Link::read_more(size_t budget, bool& is_drained) {
  const bool direct = await_ == Await::kLongBody && !opener_ && held() == 0;
  if (held() == 0) in_begin_ = in_end_ = 0;
  if (kInBytes - in_end_ < wanted_ && in_begin_ > 0) {  // all that is wanted fits from the start
    std::memmove(in_.get(), held_bytes(), held());
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  iovec parts[2] = {{payload_ + payload_at_, header_.bytes - payload_at_},
                    {in_.get() + in_end_, kInBytes - in_end_}};
  if (direct) parts[1].iov_len = kAhead;
  // After a long record there may be another one, whose payload need not come through the buffer.
  const size_t ahead = in_long_ && wanted_ <= kAhead ? kAhead : kShortBytes + kAhead;
  if (!opener_) parts[1].iov_len = std::min(parts[1].iov_len, ahead);
  parts[1].iov_len = std::min(parts[1].iov_len, std::max(budget, kAhead));
  msghdr message{};
  message.msg_iov = direct ? parts : parts + 1;
  message.msg_iovlen = direct ? 2 : 1;
  while (true) {
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    if (got < 0) broken("receive");
    is_at_end_ = got == 0;
    if (got == 0) throw IoError("the connection was closed", ExitCode::kPeer);
    const size_t placed = direct ? std::min(static_cast<size_t>(got), parts[0].iov_len) : 0;
    payload_at_ += placed;
    in_end_ += static_cast<size_t>(got) - placed;
    is_drained = static_cast<size_t>(got) < (direct ? parts[0].iov_len : 0) + parts[1].iov_len;
    return static_cast<size_t>(got);
  }
}

size_t Link::receive(FrameSink& sink, size_t budget) {
  size_t total = 0;
  for (bool is_drained = false; total < budget && !is_drained;) {
    const size_t got = read_more(budget - total, is_drained);
    if (got == 0) return total;
    total += got;
    while (advance(sink)) {
    }
  }
  return total;
}

// Sizes are bounded before anything is done with them.
void Link::begin_record(uint32_t word) {
  const size_t body = word & ~kLong;
  const bool is_long = (word & kLong) != 0;
  const bool good = is_long ? body > kShortBytes && body <= kOverhead + kMostBytes
                            : body >= kOverhead && body <= kShortBytes;
  if (!good) refuse("a record of a size that no peer sends");
  if (opener_) opener_->begin(word);
  in_long_ = is_long;
  await_ = is_long ? Await::kLongHeader : Await::kShortBody;
  wanted_ = is_long ? kOverhead : body + (opener_ ? Seal::kTagBytes : 0);
  if (is_long) header_.bytes = static_cast<uint32_t>(body - kOverhead);
}

void Link::deliver_short(FrameSink& sink) {
  const size_t body = wanted_ - (opener_ ? Seal::kTagBytes : 0);
  const std::byte* from = held_bytes();
  if (opener_) {
    opened_.resize(kShortBytes);
    opener_->update(from, opened_.data(), body);
    if (!opener_->verify(from + body)) refuse("a record that does not verify");
    from = opened_.data();
  }
  const std::byte* end = from + body;
  while (from < end) {
    FrameHeader header;
    if (static_cast<size_t>(end - from) < sizeof(header)) refuse("half a frame");
    std::memcpy(&header, from, sizeof(header));
    from += sizeof(header);
    if (static_cast<size_t>(end - from) < header.bytes) refuse("half a frame");
    std::byte* payload = sink.provide(header);
    if (header.bytes != 0) std::memcpy(payload, from, header.bytes);
    from += header.bytes;
    sink.arrived(header);
  }
}

void Link::begin_long(FrameSink& sink) {
  const uint32_t bytes = header_.bytes;
  if (opener_) {
    opener_->update(held_bytes(), &header_, sizeof(header_));
  } else {
    std::memcpy(&header_, held_bytes(), sizeof(header_));
  }
  if (header_.bytes != bytes) refuse("a frame that is not as long as its record");
  payload_ = sink.provide(header_);
  payload_at_ = 0;
  await_ = Await::kLongBody;
}

void Link::take_long() {
  const size_t bytes = std::min(held(), static_cast<size_t>(header_.bytes) - payload_at_);
  if (opener_) {
    opener_->update(held_bytes(), payload_ + payload_at_, bytes);
  } else if (bytes != 0) {
    std::memcpy(payload_ + payload_at_, held_bytes(), bytes);
  }
  payload_at_ += bytes;
  in_begin_ += bytes;
}

bool Link::advance(FrameSink& sink) {
  const Stopwatch opening;
  switch (await_) {
    case Await::kWord: {
      if (held() < kWord) return false;
      uint32_t word = 0;
      std::memcpy(&word, held_bytes(), kWord);
      in_begin_ += kWord;
      begin_record(word);
      return true;
    }
    case Await::kShortBody:
      if (held() < wanted_) return false;
      deliver_short(sink);
      if (opener_) seconds_sealing_ += opening.seconds();
      in_begin_ += wanted_;
      break;
    case Await::kLongHeader:
      if (held() < wanted_) return false;
      begin_long(sink);
      in_begin_ += kOverhead;
      return true;
    case Await::kLongBody:
      take_long();
      if (opener_) seconds_sealing_ += opening.seconds();
      if (payload_at_ < header_.bytes) return false;
      await_ = Await::kTag;
      wanted_ = opener_ ? Seal::kTagBytes : 0;
      return true;
    case Await::kTag:
      if (held() < wanted_) return false;
      if (opener_ && !opener_->verify(held_bytes())) refuse("a record that does not verify");
      in_begin_ += wanted_;
      sink.arrived(header_);
      break;
  }
  await_ = Await::kWord;
  wanted_ = kWord;
  return true;
}

}  // namespace horon
