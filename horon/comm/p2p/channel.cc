#include "horon/comm/p2p/channel.h"

#include <algorithm>
#include <cstring>

#include "horon/base/error.h"
#include "horon/comm/arithmetic/reduce.h"

namespace horon {
namespace {

constexpr uint64_t kGrain = 16;  // elements

int position_of(std::span<const int> active, int member) {
  return static_cast<int>(std::find(active.begin(), active.end(), member) - active.begin());
}

// Operations that have one way only.
void expect(const Round& round, Algorithm algorithm, OpKind kind) {
  if (round.algorithm != algorithm) refuse(round, kind);
}

}  // namespace

P2pChannel::P2pChannel(std::shared_ptr<Transport> transport, std::vector<int> members, uint64_t id)
    : transport_(std::move(transport)),
      members_(std::move(members)),
      id_(id),
      headers_(members_.size()),
      inline_bytes_(inline_bytes_of(*transport_, members_.size())),
      frames_(members_.size() * kFrameBytes),
      inline_data_(members_.size()) {
  index_ = position_of(members_, transport_->rank());
  transport_->open_flow(id_, members_);
}

P2pChannel::~P2pChannel() {
  if (transport_->failure()) {
    // A message that was given up may still be on its way into these: they are left to it.
    // NOLINTBEGIN(bugprone-unhandled-exception-at-new): without memory for it the process may end
    static_cast<void>(new std::vector<std::byte>(std::move(frames_)));
    static_cast<void>(new std::vector<std::byte>(std::move(scratch_)));
    // NOLINTEND(bugprone-unhandled-exception-at-new)
  }
  transport_->close_flow(id_);
}

void P2pChannel::exchange(const std::vector<Message>& messages, Milliseconds timeout) {
  if (messages.empty()) return;
  transport_->exchange({.messages = messages,
                        .flow = id_,
                        .timeout = timeout,
                        .doing = [this] { return describe(headers_[index_]); },
                        .received = {}});
}

void P2pChannel::run(const Pipeline& pipeline, Milliseconds timeout) {
  constexpr uint64_t kNone = ~0ULL;
  std::vector<uint64_t> chunk_of;  // by message: the chunk that waits for it
  std::vector<size_t> missing;     // messages that each gathered chunk waits for
  const auto gather = [&](uint64_t k, std::vector<Message>& messages) {
    if (k >= pipeline.chunks) return;
    const size_t first = messages.size();
    pipeline.gather(k, messages);
    missing.push_back(0);
    for (size_t i = first; i < messages.size(); ++i) {
      chunk_of.push_back(messages[i].is_send ? kNone : k);
      missing.back() += messages[i].is_send ? 0 : 1;
    }
  };
  uint64_t next = 0;
  const auto reduce_complete = [&](std::vector<Message>& messages) {
    for (; next < missing.size() && missing[next] == 0; ++next) {
      pipeline.reduce(next);
      const size_t first = messages.size();
      if (pipeline.spread) pipeline.spread(next, messages);
      chunk_of.resize(chunk_of.size() + messages.size() - first, kNone);
      gather(next + kAhead, messages);
    }
  };
  std::vector<Message> messages;
  for (uint64_t k = 0; k < kAhead; ++k) gather(k, messages);
  reduce_complete(messages);
  if (messages.empty()) return;
  transport_->exchange({.messages = messages,
                        .flow = id_,
                        .timeout = timeout,
                        .doing = [this] { return describe(headers_[index_]); },
                        .received =
                            [&](size_t index, const void*, std::vector<Message>& more) {
                              if (chunk_of[index] == kNone) return;
                              --missing[chunk_of[index]];
                              reduce_complete(more);
                            }});
}

uint64_t P2pChannel::chunk_elements(DType dtype, size_t contributors) const {
  return std::max<uint64_t>(transport_->chunk_bytes(contributors) / size_of(dtype), kGrain);
}

Message P2pChannel::to(int member, const void* data, uint64_t bytes) const {
  return {members_[member], true, const_cast<void*>(data), bytes};
}

Message P2pChannel::from(int member, void* data, uint64_t bytes) const {
  return {members_[member], false, data, bytes};
}

void P2pChannel::spread(const Round& round, BufferView out, std::span<const uint64_t> runs,
                        std::vector<Message>& messages) const {
  const int me = position_of(round.active, index_);
  for (size_t k = 0; k < round.active.size(); ++k) {
    if (round.active[k] == index_) continue;
    const BufferView mine = out.slice(runs[me], runs[me + 1] - runs[me]);
    const BufferView theirs = out.slice(runs[k], runs[k + 1] - runs[k]);
    if (mine.count != 0) messages.push_back(to(round.active[k], mine.data, mine.bytes()));
    if (theirs.count != 0) messages.push_back(from(round.active[k], theirs.data, theirs.bytes()));
  }
}

void P2pChannel::gather_parts(const Round& round, const BufferView& mine,
                              const std::function<BufferView(int member)>& theirs, std::byte* room,
                              std::vector<const void*>& sources,
                              std::vector<Message>& messages) const {
  sources.clear();
  for (int member : round.active) {
    if (member == index_) {
      sources.push_back(mine.data);
      continue;
    }
    const BufferView part = theirs(member);
    if (part.count != 0) messages.push_back(to(member, part.data, part.bytes()));
    if (mine.count != 0) messages.push_back(from(member, room, mine.bytes()));
    sources.push_back(room);
    room += mine.bytes();
  }
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
  const uint64_t chunk = chunk_elements(data.dtype, round.active.size());
  const auto me = static_cast<size_t>(position_of(round.active, index_));
  const auto part_of = [&](uint64_t k) {
    return data.slice(k * chunk, std::min(chunk, data.count - k * chunk));
  };
  // Ranges by position among the active; those that have joined own nothing.
  const auto runs_of = [&](const BufferView& part) {
    return cut_evenly(part.count, round.active.size(), kGrain);
  };
  const auto range = [](const BufferView& part, const std::vector<uint64_t>& runs, size_t at) {
    return part.slice(runs[at], runs[at + 1] - runs[at]);
  };
  const uint64_t longest = range(part_of(0), runs_of(part_of(0)), 0).bytes();
  const uint64_t slot = longest * (round.active.size() - 1);
  scratch_.resize(std::max<size_t>(scratch_.size(), slot * kAhead));
  std::vector<const void*> sources[kAhead];
  run({.chunks = (data.count + chunk - 1) / chunk,
       .gather =
           [&](uint64_t k, std::vector<Message>& messages) {
             const BufferView part = part_of(k);
             const auto runs = runs_of(part);
             gather_parts(
                 round, range(part, runs, me),
                 [&](int member) {
                   return range(part, runs, static_cast<size_t>(position_of(round.active, member)));
                 },
                 scratch_.data() + (k % kAhead) * slot, sources[k % kAhead], messages);
           },
       .reduce =
           [&](uint64_t k) {
             const BufferView part = part_of(k);
             const BufferView mine = range(part, runs_of(part), me);
             reduce_sources(round, sources[k % kAhead], mine, op);
           },
       .spread =
           [&](uint64_t k, std::vector<Message>& messages) {
             const BufferView part = part_of(k);
             spread(round, part, runs_of(part), messages);
           }},
      round.timeout);
}

void P2pChannel::reduce_sources(const Round& round, std::span<const void* const> sources,
                                BufferView out, ReduceOp op) {
  const std::vector<void*> target = {out.data};
  reduce({.dtype = out.dtype,
          .op = op,
          .divisor = static_cast<uint32_t>(round.active.size()),
          .in = sources,
          .out = target,
          .count = out.count});
}

// `out` may be inside `in`: only this member's own segment is written, which nobody else gets.
void P2pChannel::reduce_scatter(const Round& round, BufferView in, BufferView out,
                                std::span<const uint64_t> offsets, ReduceOp op) {
  expect(round, Algorithm::kOneShot, OpKind::kReduceScatter);
  const uint64_t chunk = chunk_elements(in.dtype, round.active.size()) / round.active.size();
  uint64_t longest = 0;
  for (int member : round.active)
    longest = std::max(longest, offsets[member + 1] - offsets[member]);
  const auto piece = [&](int member, uint64_t k) {
    const uint64_t count = offsets[member + 1] - offsets[member];
    const uint64_t begin = std::min(k * chunk, count);
    return in.slice(offsets[member] + begin, std::min(chunk, count - begin));
  };
  const uint64_t slot = piece(index_, 0).bytes() * (round.active.size() - 1);
  scratch_.resize(std::max<size_t>(scratch_.size(), slot * kAhead));
  std::vector<const void*> sources[kAhead];
  run({.chunks = (longest + chunk - 1) / chunk,
       .gather =
           [&](uint64_t k, std::vector<Message>& messages) {
             gather_parts(
                 round, piece(index_, k), [&](int member) { return piece(member, k); },
                 scratch_.data() + (k % kAhead) * slot, sources[k % kAhead], messages);
           },
       .reduce =
           [&](uint64_t k) {
             const uint64_t count = piece(index_, k).count;
             if (count != 0)
               reduce_sources(round, sources[k % kAhead], out.slice(k * chunk, count), op);
           },
       .spread = {}},
      round.timeout);
}

void P2pChannel::all_gather(const Round& round, BufferView in, BufferView out,
                            std::span<const uint64_t> offsets) {
  expect(round, Algorithm::kOneShot, OpKind::kAllGather);
  const BufferView mine = out.slice(offsets[index_], in.count);
  if (in.count != 0 && mine.data != in.data) std::memmove(mine.data, in.data, in.bytes());
  std::vector<BufferView> segments(members_.size());
  for (int member : round.active)
    segments[member] = out.slice(offsets[member], offsets[member + 1] - offsets[member]);
  std::vector<Message> messages;
  for (int member : round.active) gather_from(member, in, segments[member], messages);
  exchange(messages, round.timeout);
}

void P2pChannel::gather(const BufferView& in, std::span<const BufferView> segments,
                        Milliseconds timeout) {
  std::vector<Message> messages;
  for (int member = 0; member < size(); ++member)
    gather_from(member, in, segments[static_cast<size_t>(member)], messages);
  exchange(messages, timeout);
}

void P2pChannel::gather_from(int member, const BufferView& in, const BufferView& theirs,
                             std::vector<Message>& messages) const {
  if (member == index_) return;
  if (in.count != 0) messages.push_back(to(member, in.data, in.bytes()));
  if (theirs.count != 0) messages.push_back(from(member, theirs.data, theirs.bytes()));
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
  messages.clear();
  spread(round, data, runs, messages);
  exchange(messages, round.timeout);
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
  std::vector<TreeNode> leaves;
  for (int member : round.active) {
    for (const NodeArray& place : call.nodes[member]) leaves.push_back(place.node);
  }
  const auto instructions = plan_tree(leaves);
  const auto me = static_cast<size_t>(position_of(round.active, index_));
  const uint64_t chunk = chunk_elements(call.dtype, round.active.size());
  const auto part_of = [&](uint64_t k) {
    return call.out.slice(k * chunk, std::min(chunk, call.out.count - k * chunk));
  };
  const auto runs_of = [&](uint64_t k) {
    return cut_evenly(part_of(k).count, round.active.size(), kGrain);
  };
  const auto bytes_at = [&](uint64_t k, size_t at) {
    return (runs_of(k)[at + 1] - runs_of(k)[at]) * width;
  };
  const uint64_t slot = bytes_at(0, 0) * leaves.size();
  scratch_.resize(std::max<size_t>(scratch_.size(), slot * kAhead));
  std::vector<const void*> sources[kAhead];
  const auto gather = [&](uint64_t k, std::vector<Message>& messages) {
    std::byte* room = scratch_.data() + (k % kAhead) * slot;
    const auto node = [&](size_t j, size_t at) {
      return static_cast<const char*>(call.mine[j]) + (k * chunk + runs_of(k)[at]) * width;
    };
    sources[k % kAhead].clear();
    for (size_t at = 0; at < round.active.size(); ++at) {
      const int member = round.active[at];
      for (size_t j = 0; j < call.mine.size() && member != index_ && bytes_at(k, at) != 0; ++j)
        messages.push_back(to(member, node(j, at), bytes_at(k, at)));
      for (size_t j = 0; j < call.nodes[member].size(); ++j) {
        if (member != index_ && bytes_at(k, me) != 0)
          messages.push_back(from(member, room, bytes_at(k, me)));
        sources[k % kAhead].push_back(member == index_ ? static_cast<const void*>(node(j, me))
                                                       : room);
        if (member != index_) room += bytes_at(k, me);
      }
    }
  };
  const auto reduce = [&](uint64_t k) {
    const auto runs = runs_of(k);
    const std::vector<void*> target = {part_of(k).slice(runs[me], 0).data};
    horon::reduce_tree({.dtype = call.dtype,
                        .divisor = call.divisor,
                        .instructions = instructions,
                        .in = sources[k % kAhead],
                        .out = target,
                        .count = runs[me + 1] - runs[me]});
  };
  run({.chunks = (call.out.count + chunk - 1) / chunk,
       .gather = gather,
       .reduce = reduce,
       .spread =
           [&](uint64_t k, std::vector<Message>& messages) {
             spread(round, part_of(k), runs_of(k), messages);
           }},
      round.timeout);
}

}  // namespace horon
