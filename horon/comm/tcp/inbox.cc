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

void Inbox::claim(Flow& flow, uint64_t begin, uint64_t end) {
  const auto after = flow.gaps.lower_bound(begin);
  const bool overlaps = begin < flow.claimed || (after != flow.gaps.end() && after->first < end) ||
                        (after != flow.gaps.begin() && std::prev(after)->second > begin);
  if (overlaps) refuse("twice");
  if (begin == flow.claimed) {
    flow.claimed = end;
  } else {
    flow.gaps.emplace(begin, end);
  }
  while (!flow.gaps.empty() && flow.gaps.begin()->first == flow.claimed) {
    flow.claimed = flow.gaps.begin()->second;
    flow.gaps.erase(flow.gaps.begin());
  }
}

Piece* Inbox::piece_at(const Flow& flow, uint64_t begin, uint64_t end) {
  for (Piece* piece : flow.posted) {
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
  const auto found = flows_.find(id);
  if (found == flows_.end()) return;
  for (auto& [offset, kept] : found->second.kept) {
    if (!kept.is_complete) orphans_[{id, offset}] = std::move(kept.data);  // still being written to
    give_back(kept);
  }
  if (!found->second.posted.empty()) {  // a frame may be being received into it
    orphans_[{id, found->second.posted.back()->offset}] = std::move(found->second.lent.data);
  }
  give_back(found->second.lent);
  flows_.erase(found);
}

void Inbox::add(Flow& flow, Piece& piece, uint64_t bytes) {
  piece.moved += bytes;
  if (piece.is_done()) std::erase(flow.posted, &piece);
  events_.moved(piece);
}

bool Inbox::lend(Flow& flow, Piece& piece) {
  give_back(flow.lent);
  const auto found = flow.kept.find(piece.offset);
  const bool is_here =
      found != flow.kept.end() && found->second.is_complete && found->second.bytes == piece.bytes;
  if (is_here) {
    flow.lent = std::move(found->second);
    flow.kept.erase(found);
  } else {
    flow.lent = {memory(piece.bytes), piece.bytes, true};
    kept_bytes_ += piece.bytes;
  }
  piece.data = flow.lent.data.get();
  return is_here;
}

void Inbox::post(uint64_t id, Piece& piece) {
  Flow& flow = flows_[id];
  piece.offset = flow.posted_end;
  flow.posted_end += piece.bytes;
  if (piece.data == nullptr && lend(flow, piece)) {
    piece.moved = piece.bytes;
    return events_.moved(piece);
  }
  flow.posted.push_back(&piece);
  auto at = flow.kept.lower_bound(piece.offset);
  while (at != flow.kept.end() && at->first < flow.posted_end) {
    const uint64_t bytes = at->second.bytes;
    if (at->first + bytes > flow.posted_end) refuse("that does not fit what it was posted for");
    if (!at->second.is_complete) {  // arrived() moves it
      ++at;
      continue;
    }
    std::memcpy(piece.data + (at->first - piece.offset), at->second.data.get(), bytes);
    give_back(at->second);
    at = flow.kept.erase(at);
    add(flow, piece, bytes);
  }
}

// New credit is sent when half of kUnposted is used up: small messages cause none, and long ones do
// not wait for it.
std::optional<uint64_t> Inbox::due_credit(uint64_t id) {
  Flow& flow = flows_[id];
  if (flow.posted_end + kUnposted < flow.told + kUnposted / 2) return std::nullopt;
  flow.told = flow.posted_end + kUnposted;
  return flow.told;
}

std::byte* Inbox::provide(const FrameHeader& header) {
  if (!is_data(header)) {
    if (header.bytes != 0) refuse("of an unknown kind");
    return nullptr;
  }
  const bool is_new = flows_.find(header.flow) == flows_.end();
  if (is_new && flows_.size() >= kMostFlows) refuse("of one flow too many");
  Flow& flow = flows_[header.flow];
  const uint64_t end = header.offset + header.bytes;
  if (header.bytes == 0 || end < header.offset || end > flow.told) refuse("beyond its credit");
  claim(flow, header.offset, end);
  if (Piece* piece = piece_at(flow, header.offset, end))
    return piece->data + (header.offset - piece->offset);
  if (kept_bytes_ + header.bytes > kMostKept) refuse("of one byte too many");
  kept_bytes_ += header.bytes;
  Kept& kept = flow.kept[header.offset];
  kept.bytes = header.bytes;
  kept.data = memory(header.bytes);
  return kept.data.get();
}

void Inbox::control(const FrameHeader& header) {
  switch (static_cast<FrameKind>(header.kind)) {
    case FrameKind::kCredit:
      return events_.credit(header.flow, header.offset);
    case FrameKind::kLeave:
      return events_.leave();
    default:
      refuse("of an unknown kind");
  }
}

void Inbox::arrived(const FrameHeader& header) {
  if (!is_data(header)) return control(header);
  const auto found = flows_.find(header.flow);
  if (found == flows_.end()) {  // closed meanwhile
    orphans_.erase({header.flow, header.offset});
    return;
  }
  Flow& flow = found->second;
  Piece* piece = piece_at(flow, header.offset, header.offset + header.bytes);
  const auto kept = flow.kept.find(header.offset);
  if (kept != flow.kept.end()) {
    kept->second.is_complete = true;
    if (piece == nullptr) return;
    std::memcpy(piece->data + (header.offset - piece->offset), kept->second.data.get(),
                header.bytes);
    give_back(kept->second);
    flow.kept.erase(kept);
  }
  if (piece != nullptr) add(flow, *piece, header.bytes);
}

}  // namespace horon::tcp
