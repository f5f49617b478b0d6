#include "horon/comm/tcp/outbox.h"

#include <algorithm>

namespace horon::tcp {
namespace {

FrameHeader control(FrameKind kind, uint64_t flow, uint64_t offset) {
  return {flow, offset, 0, static_cast<uint32_t>(kind)};
}

}  // namespace

void Outbox::post(uint64_t flow, Piece& piece) {
  Flow& to = flows_[flow];
  piece.offset = to.next_offset;
  to.next_offset += piece.bytes;
  to.waiting.push_back(&piece);
}

void Outbox::allow(uint64_t flow, uint64_t offset) {
  uint64_t& allowed = flows_[flow].allowed;
  allowed = std::max(allowed, offset);
}

void Outbox::credit(uint64_t flow, uint64_t offset) { credits_[flow] = offset; }

void Outbox::leave() { leaves_ = true; }

void Outbox::close(uint64_t flow) {
  flows_.erase(flow);
  credits_.erase(flow);
}

uint64_t Outbox::ready_bytes(const Flow& flow) {
  if (flow.waiting.empty()) return 0;
  const Piece& first = *flow.waiting.front();
  const uint64_t at = first.offset + first.picked;
  return flow.allowed <= at ? 0 : std::min(first.bytes - first.picked, flow.allowed - at);
}

bool Outbox::has_load(bool long_only) const {
  if (!long_only && (leaves_ || !credits_.empty())) return true;
  return std::any_of(flows_.begin(), flows_.end(), [&](const auto& one) {
    return ready_bytes(one.second) > 0 && !(long_only && !is_long(*one.second.waiting.front()));
  });
}

void Outbox::pick(uint64_t id, Flow& flow, uint64_t bytes, Load& load) {
  Piece& piece = *flow.waiting.front();
  load.frames.push_back({{id, piece.offset + piece.picked, static_cast<uint32_t>(bytes),
                          static_cast<uint32_t>(FrameKind::kData)},
                         piece.data + piece.picked});
  load.pieces.push_back(&piece);
  piece.picked += bytes;
  if (piece.picked == piece.bytes) flow.waiting.pop_front();
}

// Several short frames share a record.
void Outbox::take_short(Load& load) {
  uint64_t room = Link::kShortBytes;
  while (!credits_.empty() && room >= Link::kOverhead) {
    const auto [flow, offset] = *credits_.begin();
    credits_.erase(credits_.begin());
    load.frames.push_back({control(FrameKind::kCredit, flow, offset), nullptr});
    load.pieces.push_back(nullptr);
    room -= Link::kOverhead;
  }
  for (auto& [id, flow] : flows_) {
    while (room > Link::kOverhead && !flow.waiting.empty() && !is_long(*flow.waiting.front())) {
      const uint64_t bytes = std::min(ready_bytes(flow), room - Link::kOverhead);
      if (bytes == 0) break;
      pick(id, flow, bytes, load);
      room -= Link::kOverhead + bytes;
    }
  }
}

void Outbox::take(Load& load, bool long_only) {
  load.clear();
  if (!long_only) take_short(load);
  if (!load.frames.empty()) return;
  auto at = flows_.upper_bound(last_long_);
  for (size_t i = 0; i < flows_.size(); ++i, ++at) {
    if (at == flows_.end()) at = flows_.begin();
    const uint64_t bytes = std::min(ready_bytes(at->second), long_frame_);
    if (bytes == 0 || (long_only && !is_long(*at->second.waiting.front()))) continue;
    last_long_ = at->first;
    return pick(at->first, at->second, bytes, load);
  }
  if (long_only || !leaves_) return;
  leaves_ = false;
  load.frames.push_back({control(FrameKind::kLeave, 0, 0), nullptr});
  load.pieces.push_back(nullptr);
}

}  // namespace horon::tcp
