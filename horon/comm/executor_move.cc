// The payload half of Executor: agreed operations, from the frames or through the channel.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "horon/base/error.h"
#include "horon/comm/exact_sum.h"
#include "horon/comm/executor.h"
#include "horon/comm/reduce.h"

namespace horon {
namespace {

// What each contributor brings; those that have joined bring nothing.
std::vector<uint64_t> brought_counts(const std::vector<Header>& headers,
                                     const std::vector<int>& active) {
  std::vector<uint64_t> counts(headers.size(), 0);
  for (int member : active) counts[member] = headers[member].count;
  return counts;
}

bool is_exact(const Header& header) { return header.reduction == Reduction::kExact; }

}  // namespace

Algorithm Executor::choose(const Said& said, const std::vector<int>& active) const {
  const Header& first = said.headers[active.front()];
  uint64_t bytes = 0;
  bool all_inline = true;
  bool reachable = true;
  for (int member : active) {
    bytes = std::max(bytes, said.headers[member].count * size_of(first.dtype));
    reachable = reachable && said.headers[member].address != kNoAddress;
    all_inline = all_inline && said.headers[member].is_inline != 0;
  }
  const Algorithm chosen = table_.choose({.kind = first.kind,
                                          .backend = name_,
                                          .device = DeviceKind::kCpu,
                                          .bytes = bytes,
                                          .ranks = static_cast<int>(active.size()),
                                          .reachable = reachable});
  return chosen == Algorithm::kInline && !all_inline ? Algorithm::kDefault : chosen;
}

void Executor::move(const Item& item, const Said& said, const std::vector<int>& active,
                    Milliseconds timeout) {
  const Request& request = *item.request;
  if (request.kind == OpKind::kBarrier) return;
  const Round round{said.headers, active, timeout, choose(said, active)};
  if (round.algorithm == Algorithm::kInline) return move_inline(item, said, active);
  switch (request.kind) {
    case OpKind::kAllReduce:
      return is_exact(item.header) ? move_exact(item, said, round)
                                   : channel_->all_reduce(round, request.out, request.op);
    case OpKind::kReduceScatter:
      return channel_->reduce_scatter(round, request.in, request.out, offsets_of(item.counts),
                                      request.op);
    case OpKind::kAllGather:
      return move_gather(item, said, round);
    case OpKind::kBroadcast:
      return channel_->broadcast(round, request.out, request.root);
    case OpKind::kAllToAll: {
      std::vector<std::vector<uint64_t>> sends(said.extra.size(),
                                               std::vector<uint64_t>(said.extra.size(), 0));
      for (int member : active) {
        sends[member].assign(said.extra[member].begin(), said.extra[member].begin() + size());
      }
      if (request.gathered == nullptr)
        return channel_->all_to_all(round, request.in, request.out, sends);
      std::vector<uint64_t> counts;
      for (const auto& from : sends) counts.push_back(from[static_cast<size_t>(index())]);
      request.gathered->data = backend_->allocate(offsets_of(counts).back(), request.in.dtype);
      request.gathered->counts = counts;
      return channel_->all_to_all(round, request.in, request.gathered->data.view(), sends);
    }
    default:
      throw Error(fmt::format("no payload for {}", name_of(request.kind)));
  }
}

void Executor::move_gather(const Item& item, const Said& said, const Round& round) {
  const Request& request = *item.request;
  const auto counts = brought_counts(said.headers, {round.active.begin(), round.active.end()});
  const auto offsets = offsets_of(counts);
  BufferView out = request.out;
  if (request.gathered != nullptr) {
    request.gathered->data = backend_->allocate(offsets.back(), request.in.dtype);
    request.gathered->counts = counts;
    out = request.gathered->data.view();
  }
  if (round.algorithm != Algorithm::kInline)
    return channel_->all_gather(round, request.in, out, offsets);
  for (int member : round.active) {
    const BufferView place = out.slice(offsets[member], counts[member]);
    if (place.count != 0) std::memcpy(place.data, channel_->inline_data(member), place.bytes());
  }
}

// Everything is in the frames already.
void Executor::move_inline(const Item& item, const Said& said, const std::vector<int>& active) {
  const Request& request = *item.request;
  const Round round{said.headers, active, Milliseconds(0), Algorithm::kInline};
  if (request.kind == OpKind::kAllGather) return move_gather(item, said, round);
  if (request.kind == OpKind::kBroadcast) {
    const bool copies = request.root != index() && request.out.count != 0;
    if (copies)
      std::memcpy(request.out.data, channel_->inline_data(request.root), request.out.bytes());
    return;
  }
  uint64_t first = 0;
  if (request.kind == OpKind::kReduceScatter) {
    first = offsets_of(item.counts)[static_cast<size_t>(index())] * size_of(request.in.dtype);
  }
  std::vector<const void*> in;
  std::vector<TreeNode> leaves;
  for (int member : active) {
    // My own contribution is still hot where it came from.
    const auto* mine = static_cast<const std::byte*>(request.in.data);
    in.push_back((member == index() ? mine : channel_->inline_data(member)) + first);
    leaves.push_back({static_cast<uint64_t>(member), 0});
  }
  const std::vector<void*> out = {request.out.data};
  const auto contributors = static_cast<uint32_t>(active.size());
  if (is_exact(item.header)) {
    const auto steps = plan_tree(leaves);
    reduce_tree({.dtype = request.in.dtype,
                 .divisor = request.op == ReduceOp::kAverage ? contributors : 1,
                 .steps = steps,
                 .in = in,
                 .out = out,
                 .count = request.out.count});
    return;
  }
  reduce({.dtype = request.in.dtype,
          .op = request.op,
          .divisor = contributors,
          .in = in,
          .out = out,
          .count = request.out.count});
}

// A plain exact all-reduce has one shard a rank, numbered by rank. Memory that peers cannot reach
// is copied to the heap first where that makes a difference (shared memory).
void Executor::move_exact(const Item& item, const Said& said, const Round& round) {
  const Request& request = *item.request;
  TreeCall call;
  call.dtype = request.out.dtype;
  call.nodes.resize(said.headers.size());
  call.out = request.out;
  uint64_t shards_given = 0;
  if (request.exact == nullptr) {
    for (int member : round.active) {
      call.nodes[member].push_back(
          {{static_cast<uint64_t>(member), 0}, said.headers[member].address});
    }
    call.mine = {request.in.data};
    shards_given = round.active.size();
  } else {
    for (int member : round.active) {
      call.nodes[member] = nodes_of(said.extra[member]);
      for (const NodePlace& place : call.nodes[member]) {  // a node may reach beyond the last shard
        shards_given += std::min<uint64_t>(1ULL << place.node.level,
                                           request.exact->shards() - place.node.first);
      }
    }
    for (const ExactSum::Kept& kept : request.exact->kept())
      call.mine.push_back(kept.array.view().data);
  }
  call.divisor = request.op == ReduceOp::kAverage ? static_cast<uint32_t>(shards_given) : 1;
  channel_->reduce_tree(round, call);
}

}  // namespace horon
