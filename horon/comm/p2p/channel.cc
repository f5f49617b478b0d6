#include "horon/comm/p2p/channel.h"

#include <algorithm>
#include <cstring>

#include "horon/base/error.h"
#include "horon/comm/arithmetic/reduce.h"
#include "horon/comm/engine/select.h"

namespace horon {
namespace {

// Elements are handled in windows of this many bytes: what comes in fits into the cache, and memory
// stays bounded whatever the message.
constexpr uint64_t kWindowBytes = 8U << 20;
constexpr uint64_t kGrain = 16;  // elements
// Longer messages go in pieces: each one that is through counts as progress, and fits MPI's int.
constexpr uint64_t kMessageBytes = 64U << 20;

int position_of(std::span<const int> active, int member) {
  return static_cast<int>(std::find(active.begin(), active.end(), member) - active.begin());
}

// Operations that have one way only.
void expect(const Round& round, Algorithm algorithm, OpKind kind) {
  if (round.algorithm != algorithm) refuse(round, kind);
}

}  // namespace

std::vector<AlgorithmRow> P2pChannel::algorithms() {
  using enum OpKind;
  using enum Algorithm;
  constexpr uint64_t kSmall = kFrameBytes - sizeof(Header);
  constexpr Reduction kExact = Reduction::kExact;
  return {
      {.kind = kAllReduce, .algorithm = kInline, .only = &kFitsHeader, .most_bytes = kSmall},
      {.kind = kAllReduce, .algorithm = kOneShot, .most_bytes = 16U << 10, .most_ranks = 8},
      {.kind = kAllReduce, .algorithm = kTwoShot},
      {.kind = kAllReduce,
       .algorithm = kInline,
       .only = &kFitsHeader,
       .most_bytes = kSmall,
       .reduction = kExact},
      {.kind = kAllReduce, .algorithm = kTwoShot, .reduction = kExact},
      {.kind = kReduceScatter, .algorithm = kInline, .only = &kFitsHeader, .most_bytes = kSmall},
      {.kind = kReduceScatter, .algorithm = kOneShot},
      {.kind = kAllGather, .algorithm = kInline, .only = &kFitsHeader, .most_bytes = kSmall},
      {.kind = kAllGather, .algorithm = kOneShot},
      {.kind = kBroadcast, .algorithm = kInline, .only = &kFitsHeader, .most_bytes = kSmall},
      {.kind = kBroadcast, .algorithm = kTree, .most_bytes = 64U << 10},
      {.kind = kBroadcast, .algorithm = kTree, .most_ranks = 2},
      {.kind = kBroadcast, .algorithm = kScatter},
      {.kind = kAllToAll, .algorithm = kOneShot},
  };
}

P2pChannel::P2pChannel(std::shared_ptr<Transport> transport, std::vector<int> members, uint64_t id)
    : transport_(std::move(transport)),
      members_(std::move(members)),
      id_(id),
      headers_(members_.size()),
      frames_(members_.size() * kFrameBytes) {
  index_ = position_of(members_, transport_->rank());
  transport_->open_stream(id_);
}

P2pChannel::~P2pChannel() {
  if (transport_->failure()) {
    // A message that was given up may still be on its way into these: they are left to it.
    // NOLINTBEGIN(bugprone-unhandled-exception-at-new): without memory for it the process may end
    static_cast<void>(new std::vector<std::byte>(std::move(frames_)));
    static_cast<void>(new std::vector<std::byte>(std::move(scratch_)));
    // NOLINTEND(bugprone-unhandled-exception-at-new)
  }
  transport_->close_stream(id_);
}

void P2pChannel::exchange(const std::vector<Message>& messages, Milliseconds timeout) {
  std::vector<Message> pieces;
  for (const Message& message : messages) {
    for (uint64_t at = 0; at < message.bytes; at += kMessageBytes) {
      pieces.push_back({message.peer, message.is_send, static_cast<char*>(message.data) + at,
                        std::min(kMessageBytes, message.bytes - at)});
    }
  }
  if (!pieces.empty()) transport_->exchange(pieces, id_, timeout, describe(headers_[index_]));
}

Message P2pChannel::to(int member, const void* data, uint64_t bytes) const {
  return {members_[member], true, const_cast<void*>(data), bytes};
}

Message P2pChannel::from(int member, void* data, uint64_t bytes) const {
  return {members_[member], false, data, bytes};
}

void P2pChannel::arrive(const Header& header, std::span<const std::byte> inline_data,
                        Milliseconds timeout) {
  std::byte* mine = frames_.data() + static_cast<size_t>(index_) * kFrameBytes;
  headers_[index_] = header;
  std::memcpy(mine, &header, sizeof(header));
  if (!inline_data.empty())
    std::memcpy(mine + sizeof(header), inline_data.data(), inline_data.size());
  std::vector<Message> messages;
  for (int member = 0; member < size(); ++member) {
    if (member == index_) continue;
    messages.push_back(to(member, mine, kFrameBytes));
    messages.push_back(
        from(member, frames_.data() + static_cast<size_t>(member) * kFrameBytes, kFrameBytes));
  }
  exchange(messages, timeout);
  for (int member = 0; member < size(); ++member) {
    std::memcpy(&headers_[member], frames_.data() + static_cast<size_t>(member) * kFrameBytes,
                sizeof(Header));
  }
}

const std::byte* P2pChannel::inline_data(int member) const {
  return frames_.data() + static_cast<size_t>(member) * kFrameBytes + sizeof(Header);
}

void P2pChannel::spread(const Round& round, BufferView out, std::span<const uint64_t> runs) {
  const size_t width = size_of(out.dtype);
  const int me = position_of(round.active, index_);
  std::vector<Message> messages;
  for (size_t k = 0; k < round.active.size(); ++k) {
    if (round.active[k] == index_) continue;
    const BufferView mine = out.slice(runs[me], runs[me + 1] - runs[me]);
    const BufferView theirs = out.slice(runs[k], runs[k + 1] - runs[k]);
    if (mine.count != 0) messages.push_back(to(round.active[k], mine.data, mine.count * width));
    if (theirs.count != 0)
      messages.push_back(from(round.active[k], theirs.data, theirs.count * width));
  }
  exchange(messages, round.timeout);
}

// Everybody gets everything and reduces it alone: one round.
void P2pChannel::reduce_in_one_shot(const Round& round, BufferView data, ReduceOp op) {
  scratch_.resize(std::max(scratch_.size(), data.bytes() * round.active.size()));
  std::byte* room = scratch_.data();
  std::vector<const void*> sources;
  std::vector<Message> messages;
  for (int member : round.active) {
    if (member == index_) {
      sources.push_back(data.data);
      continue;
    }
    messages.push_back(to(member, data.data, data.bytes()));
    messages.push_back(from(member, room, data.bytes()));
    sources.push_back(room);
    room += data.bytes();
  }
  exchange(messages, round.timeout);
  const std::vector<void*> target = {data.data};
  reduce({.dtype = data.dtype,
          .op = op,
          .divisor = static_cast<uint32_t>(round.active.size()),
          .in = sources,
          .out = target,
          .count = data.count});
}

void P2pChannel::all_reduce(const Round& round, BufferView data, ReduceOp op) {
  if (round.algorithm == Algorithm::kOneShot) return reduce_in_one_shot(round, data, op);
  expect(round, Algorithm::kTwoShot, OpKind::kAllReduce);
  reduce_in_two_shots(round, data, op);
}

void P2pChannel::reduce_in_two_shots(const Round& round, BufferView data, ReduceOp op) {
  const uint64_t window = kWindowBytes / size_of(data.dtype);
  for (uint64_t lo = 0; lo < data.count; lo += window) {
    const BufferView part = data.slice(lo, std::min(window, data.count - lo));
    const auto runs = cut_evenly(part.count, round.active.size(), kGrain);
    // offsets by member: those that have joined own nothing
    std::vector<uint64_t> offsets(members_.size() + 1, 0);
    for (size_t member = 0, k = 0; member < members_.size(); ++member) {
      const bool is_active = k < round.active.size() && round.active[k] == static_cast<int>(member);
      if (is_active) ++k;
      offsets[member + 1] = runs[k];
    }
    const uint64_t first = offsets[index_];
    reduce_segments(round, part, part.slice(first, offsets[index_ + 1] - first), offsets, op);
    spread(round, part, runs);
  }
}

void P2pChannel::reduce_scatter(const Round& round, BufferView in, BufferView out,
                                std::span<const uint64_t> offsets, ReduceOp op) {
  expect(round, Algorithm::kOneShot, OpKind::kReduceScatter);
  reduce_segments(round, in, out, offsets, op);
}

void P2pChannel::reduce_segments(const Round& round, BufferView in, BufferView out,
                                 std::span<const uint64_t> offsets, ReduceOp op) {
  const size_t width = size_of(in.dtype);
  const uint64_t window = kWindowBytes / width;
  uint64_t longest = 0;
  for (int member : round.active)
    longest = std::max(longest, offsets[member + 1] - offsets[member]);
  const auto piece = [&](int member, uint64_t lo) {
    const uint64_t count = offsets[member + 1] - offsets[member];
    const uint64_t begin = std::min(lo, count);
    return in.slice(offsets[member] + begin, std::min(window, count - begin));
  };
  for (uint64_t lo = 0; lo < longest; lo += window) {
    const BufferView mine = piece(index_, lo);
    scratch_.resize(std::max(scratch_.size(), mine.bytes() * (round.active.size() - 1)));
    std::vector<const void*> sources;
    std::vector<Message> messages;
    std::byte* room = scratch_.data();
    for (int member : round.active) {
      if (member == index_) {
        sources.push_back(mine.data);
        continue;
      }
      const BufferView theirs = piece(member, lo);
      if (theirs.count != 0) messages.push_back(to(member, theirs.data, theirs.bytes()));
      if (mine.count != 0) messages.push_back(from(member, room, mine.bytes()));
      sources.push_back(room);
      room += mine.bytes();
    }
    exchange(messages, round.timeout);
    const std::vector<void*> target = {static_cast<char*>(out.data) + lo * width};
    reduce({.dtype = in.dtype,
            .op = op,
            .divisor = static_cast<uint32_t>(round.active.size()),
            .in = sources,
            .out = target,
            .count = mine.count});
  }
}

void P2pChannel::all_gather(const Round& round, BufferView in, BufferView out,
                            std::span<const uint64_t> offsets) {
  expect(round, Algorithm::kOneShot, OpKind::kAllGather);
  const BufferView mine = out.slice(offsets[index_], in.count);
  if (in.count != 0 && mine.data != in.data) std::memmove(mine.data, in.data, in.bytes());
  std::vector<Message> messages;
  for (int member : round.active) {
    if (member == index_) continue;
    const BufferView theirs = out.slice(offsets[member], offsets[member + 1] - offsets[member]);
    if (in.count != 0) messages.push_back(to(member, in.data, in.bytes()));
    if (theirs.count != 0) messages.push_back(from(member, theirs.data, theirs.bytes()));
  }
  exchange(messages, round.timeout);
}

void P2pChannel::broadcast(const Round& round, BufferView data, int root) {
  if (round.algorithm == Algorithm::kTree) return broadcast_by_tree(round, data, root);
  expect(round, Algorithm::kScatter, OpKind::kBroadcast);
  broadcast_by_scatter(round, data, root);
}

void P2pChannel::broadcast_by_scatter(const Round& round, BufferView data, int root) {
  const auto runs = cut_evenly(data.count, round.active.size(), kGrain);
  std::vector<Message> messages;
  for (size_t k = 0; k < round.active.size(); ++k) {
    const BufferView run = data.slice(runs[k], runs[k + 1] - runs[k]);
    const int owner = round.active[k];
    if (run.count == 0 || owner == root) continue;
    if (index_ == root) messages.push_back(to(owner, run.data, run.bytes()));
    if (index_ == owner) messages.push_back(from(root, run.data, run.bytes()));
  }
  exchange(messages, round.timeout);
  spread(round, data, runs);
}

void P2pChannel::broadcast_by_tree(const Round& round, BufferView data, int root) {
  const auto n = static_cast<int>(round.active.size());
  const int root_at = position_of(round.active, root);
  const int me = (position_of(round.active, index_) - root_at + n) % n;
  const auto member_at = [&](int position) { return round.active[(position + root_at) % n]; };
  int step = 1;
  while (step < n) step *= 2;
  bool has_data = me == 0;
  for (step /= 2; step > 0; step /= 2) {
    if (has_data && me % (2 * step) == 0 && me + step < n) {
      exchange({to(member_at(me + step), data.data, data.bytes())}, round.timeout);
    } else if (!has_data && me % (2 * step) == step) {
      exchange({from(member_at(me - step), data.data, data.bytes())}, round.timeout);
      has_data = true;
    }
  }
}

void P2pChannel::all_to_all(const Round& round, BufferView in, BufferView out,
                            const std::vector<std::vector<uint64_t>>& sends) {
  expect(round, Algorithm::kOneShot, OpKind::kAllToAll);
  std::vector<uint64_t> received(members_.size(), 0);
  for (int member : round.active) received[member] = sends[member][index_];
  const auto in_offsets = offsets_of(sends[index_]);
  const auto out_offsets = offsets_of(received);
  std::vector<Message> messages;
  for (int member : round.active) {
    const BufferView outgoing = in.slice(in_offsets[member], sends[index_][member]);
    const BufferView incoming = out.slice(out_offsets[member], received[member]);
    if (member == index_) {
      if (outgoing.count != 0) std::memmove(incoming.data, outgoing.data, outgoing.bytes());
      continue;
    }
    if (outgoing.count != 0) messages.push_back(to(member, outgoing.data, outgoing.bytes()));
    if (incoming.count != 0) messages.push_back(from(member, incoming.data, incoming.bytes()));
  }
  exchange(messages, round.timeout);
}

// As all_reduce, with complete nodes of the tree instead of whole contributions: what travels is
// one array for each node, and a member whose shards are an aligned block has one.
void P2pChannel::reduce_tree(const Round& round, const TreeCall& call) {
  expect(round, Algorithm::kTwoShot, OpKind::kAllReduce);
  const size_t width = size_of(call.dtype);
  const uint64_t window = kWindowBytes / width;
  std::vector<TreeNode> leaves;
  for (int member : round.active) {
    for (const NodeArray& place : call.nodes[member]) leaves.push_back(place.node);
  }
  const auto steps = plan_tree(leaves);
  const int me = position_of(round.active, index_);
  for (uint64_t lo = 0; lo < call.out.count; lo += window) {
    const BufferView part = call.out.slice(lo, std::min(window, call.out.count - lo));
    const auto runs = cut_evenly(part.count, round.active.size(), kGrain);
    const uint64_t my_bytes = (runs[me + 1] - runs[me]) * width;
    scratch_.resize(std::max(scratch_.size(), my_bytes * leaves.size()));
    std::byte* room = scratch_.data();
    std::vector<const void*> sources;
    std::vector<Message> messages;
    for (size_t k = 0; k < round.active.size(); ++k) {
      const int member = round.active[k];
      const uint64_t their_bytes = (runs[k + 1] - runs[k]) * width;
      for (size_t j = 0; j < call.mine.size() && member != index_; ++j) {
        const char* node = static_cast<const char*>(call.mine[j]) + (lo + runs[k]) * width;
        if (their_bytes != 0) messages.push_back(to(member, node, their_bytes));
      }
      for (size_t j = 0; j < call.nodes[member].size(); ++j) {
        if (member == index_) {
          sources.push_back(static_cast<const char*>(call.mine[j]) + (lo + runs[me]) * width);
          continue;
        }
        if (my_bytes != 0) messages.push_back(from(member, room, my_bytes));
        sources.push_back(room);
        room += my_bytes;
      }
    }
    exchange(messages, round.timeout);
    const std::vector<void*> target = {part.slice(runs[me], 0).data};
    horon::reduce_tree({.dtype = call.dtype,
                        .divisor = call.divisor,
                        .steps = steps,
                        .in = sources,
                        .out = target,
                        .count = runs[me + 1] - runs[me]});
    spread(round, part, runs);
  }
}

}  // namespace horon
