#include "horon/comm/tcp/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "horon/base/error.h"

namespace horon::tcp {
namespace {

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

void Inbox::add(Stream& stream, Piece& piece, uint64_t bytes) {
  piece.moved += bytes;
  if (piece.is_done()) std::erase(stream.posted, &piece);
  events_.moved(piece);
}

void Inbox::post(uint64_t id, Piece& piece) {
  Stream& stream = streams_[id];
  piece.offset = stream.posted_end;
  stream.posted_end += piece.bytes;
  stream.posted.push_back(&piece);
  auto at = stream.kept.lower_bound(piece.offset);
  while (at != stream.kept.end() && at->first < stream.posted_end) {
    const std::vector<std::byte>& data = at->second.data;
    if (at->first + data.size() > stream.posted_end)
      refuse("that does not fit what it was posted for");
    if (!at->second.is_complete) {  // arrived() moves it
      ++at;
      continue;
    }
    std::memcpy(piece.data + (at->first - piece.offset), data.data(), data.size());
    const uint64_t bytes = data.size();
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
  Kept& kept = stream.kept[header.offset];
  kept.data.resize(header.bytes);
  return kept.data.data();
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
  if (found == streams_.end()) return;  // closed meanwhile
  Stream& stream = found->second;
  Piece* piece = piece_at(stream, header.offset, header.offset + header.bytes);
  const auto kept = stream.kept.find(header.offset);
  if (kept != stream.kept.end()) {
    kept->second.is_complete = true;
    if (piece == nullptr) return;
    std::memcpy(piece->data + (header.offset - piece->offset), kept->second.data.data(),
                header.bytes);
    stream.kept.erase(kept);
  }
  if (piece != nullptr) add(stream, *piece, header.bytes);
}

}  // namespace horon::tcp
