#include "horon/comm/tcp/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "horon/base/error.h"

namespace horon::tcp {
namespace {

constexpr uint64_t kReused = 16U << 10;  // bytes

[[noreturn]] void refuse(const char* why) {
  throw Error(fmt::format("received a frame {}", why), ExitCode::kPeer);
}

bool is_data(const FrameHeader& header) {
  return header.kind == static_cast<uint32_t>(FrameKind::kData);
}

}  // namespace

void Inbox::claim(Stream& stream, uint64_t begin, uint64_t end) {
  const auto after = stream.gaps.lower_bound(begin);
  const bool overlaps = begin < stream.claimed ||
                        (after != stream.gaps.end() && after->first < end) ||
                        (after != stream.gaps.begin() && std::prev(after)->second > begin);
  if (overlaps) refuse("twice");
  if (begin == stream.claimed) {
    stream.claimed = end;
  } else {
    stream.gaps.emplace(begin, end);
  }
  while (!stream.gaps.empty() && stream.gaps.begin()->first == stream.claimed) {
    stream.claimed = stream.gaps.begin()->second;
    stream.gaps.erase(stream.gaps.begin());
  }
}

Piece* Inbox::piece_at(const Stream& stream, uint64_t begin, uint64_t end) {
  for (Piece* piece : stream.posted) {
    if (begin >= piece->offset + piece->bytes) continue;
    if (begin < piece->offset && end <= piece->offset) return nullptr;
    if (begin < piece->offset || end > piece->offset + piece->bytes)
      refuse("that does not fit what it was posted for");
    return piece;
  }
  return nullptr;
}

// Fresh pages cost more than the copy.
std::unique_ptr<std::byte[]> Inbox::memory(uint64_t bytes) {
  if (bytes < kReused || bytes > kUnposted)
    return std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (spare_.empty()) return std::make_unique_for_overwrite<std::byte[]>(kUnposted);
  auto found = std::move(spare_.back());
  spare_.pop_back();
  return found;
}

void Inbox::give_back(Kept& kept) {
  kept_bytes_ -= kept.bytes;
  const bool is_whole = kept.bytes >= kReused && kept.bytes <= kUnposted;
  if (kept.data && is_whole && spare_.size() < kMostSpare) spare_.push_back(std::move(kept.data));
  kept = {};
}

void Inbox::close(uint64_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  for (auto& [offset, kept] : found->second.kept) {
    if (!kept.is_complete) orphans_[{id, offset}] = std::move(kept.data);  // still being written to
    give_back(kept);
  }
  if (!found->second.posted.empty()) {  // perhaps into this
    orphans_[{id, found->second.posted.back()->offset}] = std::move(found->second.lent.data);
  }
  give_back(found->second.lent);
  streams_.erase(found);
}

void Inbox::add(Stream& stream, Piece& piece, uint64_t bytes) {
  piece.moved += bytes;
  if (piece.is_done()) std::erase(stream.posted, &piece);
  events_.moved(piece);
}

bool Inbox::lend(Stream& stream, Piece& piece) {
  give_back(stream.lent);
  const auto found = stream.kept.find(piece.offset);
  const bool is_here =
      found != stream.kept.end() && found->second.is_complete && found->second.bytes == piece.bytes;
  if (is_here) {
    stream.lent = std::move(found->second);
    stream.kept.erase(found);
  } else {
    stream.lent = {memory(piece.bytes), piece.bytes, true};
    kept_bytes_ += piece.bytes;
  }
  piece.data = stream.lent.data.get();
  return is_here;
}

void Inbox::post(uint64_t id, Piece& piece) {
  Stream& stream = streams_[id];
  piece.offset = stream.posted_end;
  stream.posted_end += piece.bytes;
  if (piece.data == nullptr && lend(stream, piece)) {
    piece.moved = piece.bytes;
    return events_.moved(piece);
  }
  stream.posted.push_back(&piece);
  auto at = stream.kept.lower_bound(piece.offset);
  while (at != stream.kept.end() && at->first < stream.posted_end) {
    const uint64_t bytes = at->second.bytes;
    if (at->first + bytes > stream.posted_end) refuse("that does not fit what it was posted for");
    if (!at->second.is_complete) {  // arrived() moves it
      ++at;
      continue;
    }
    std::memcpy(piece.data + (at->first - piece.offset), at->second.data.get(), bytes);
    give_back(at->second);
    at = stream.kept.erase(at);
    add(stream, piece, bytes);
  }
}

// Told again when half of what the peer may send unposted is used up, so that it is never told of
// small messages, and long ones wait for nothing.
std::optional<uint64_t> Inbox::due_credit(uint64_t id) {
  Stream& stream = streams_[id];
  if (stream.posted_end + kUnposted < stream.told + kUnposted / 2) return std::nullopt;
  stream.told = stream.posted_end + kUnposted;
  return stream.told;
}

std::byte* Inbox::place(const FrameHeader& header) {
  if (!is_data(header)) {
    if (header.bytes != 0) refuse("of an unknown kind");
    return nullptr;
  }
  const bool is_new = streams_.find(header.stream) == streams_.end();
  if (is_new && streams_.size() >= kMostStreams) refuse("of one stream too many");
  Stream& stream = streams_[header.stream];
  const uint64_t end = header.offset + header.bytes;
  if (header.bytes == 0 || end < header.offset || end > stream.told) refuse("beyond its credit");
  claim(stream, header.offset, end);
  if (Piece* piece = piece_at(stream, header.offset, end))
    return piece->data + (header.offset - piece->offset);
  if (kept_bytes_ + header.bytes > kMostKept) refuse("of one byte too many");
  kept_bytes_ += header.bytes;
  Kept& kept = stream.kept[header.offset];
  kept.bytes = header.bytes;
  kept.data = memory(header.bytes);
  return kept.data.get();
}

void Inbox::control(const FrameHeader& header) {
  switch (static_cast<FrameKind>(header.kind)) {
    case FrameKind::kCredit:
      return events_.credit(header.stream, header.offset);
    case FrameKind::kLeave:
      return events_.leave();
    default:
      refuse("of an unknown kind");
  }
}

void Inbox::arrived(const FrameHeader& header) {
  if (!is_data(header)) return control(header);
  const auto found = streams_.find(header.stream);
  if (found == streams_.end()) {  // closed meanwhile
    orphans_.erase({header.stream, header.offset});
    return;
  }
  Stream& stream = found->second;
  Piece* piece = piece_at(stream, header.offset, header.offset + header.bytes);
  const auto kept = stream.kept.find(header.offset);
  if (kept != stream.kept.end()) {
    kept->second.is_complete = true;
    if (piece == nullptr) return;
    std::memcpy(piece->data + (header.offset - piece->offset), kept->second.data.get(),
                header.bytes);
    give_back(kept->second);
    stream.kept.erase(kept);
  }
  if (piece != nullptr) add(stream, *piece, header.bytes);
}

}  // namespace horon::tcp
