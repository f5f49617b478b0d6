// The payload half of Executor: agreed operations, from the frames or through the channel.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "horon/base/error.h"
#include "horon/comm/arithmetic/reduce.h"
#include "horon/comm/engine/executor.h"
#include "horon/comm/engine/staging.h"
#include "horon/comm/exact_sum.h"

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

Situation Executor::situation_of(const Item& item, const Said& said) const {
  const Request& request = *item.request;
  Situation agreed = situation_of(request, kNoAddress);
  agreed.ranks = static_cast<int>(active_.size());
  agreed.everybody = active_.size() == said.headers.size();
  agreed.fits_header = true;
  agreed.reachable = true;
  for (int member : active_) {
    const Header& header = said.headers[member];
    agreed.bytes = std::max(agreed.bytes, header.count * size_of(request.in.dtype));
    agreed.fits_header = agreed.fits_header && header.is_inline != 0;
    agreed.reachable = agreed.reachable && header.address != kNoAddress;
  }
  if (request.kind == OpKind::kBroadcast)  // only the root's is read
    agreed.reachable = said.headers[request.root].address != kNoAddress;
  if (is_exact(item.header)) agreed.reachable = nodes_reachable(said);
  return agreed;
}

// All nodes of an exact sum, and where the result goes.
bool Executor::nodes_reachable(const Said& said) const {
  return std::all_of(active_.begin(), active_.end(), [&](int member) {
    const Header& header = said.headers[member];
    if (header.out_address == kNoAddress) return false;
    if (header.layout == 0) return header.address != kNoAddress;  // one shard a rank
    const auto nodes = nodes_of(said.extra[member]);
    return std::all_of(nodes.begin(), nodes.end(),
                       [](const NodeArray& place) { return place.address != kNoAddress; });
  });
}

void Executor::move(const Item& item, const Said& said, Milliseconds timeout) {
  if (item.request->kind == OpKind::kBarrier) return;
  const AlgorithmRow* row = table_.find(situation_of(item, said));
  if (row == nullptr && !item.request->in.device.is_cpu()) return move_staged(item, said, timeout);
  if (row == nullptr)
    throw Error(fmt::format("{}: no way for {}", backend_->name(), horon::describe(item.header)));
  chosen_ = row;
  const Round round{said.headers, active_, timeout, row->algorithm, item.request->ready != nullptr};
  row->algorithm == Algorithm::kInline ? move_inline(item, said, round)
                                       : move_by_channel(item, said, round);
}

// What the device could have done alone it cannot do now (a rank has joined): through the host.
void Executor::move_staged(const Item& item, const Said& said, Milliseconds timeout) {
  const StagedRequest staged(*item.request, options_.device.get());
  Item on_host = item;
  on_host.request = &staged.host();
  move(on_host, said, timeout);
  staged.write_back();
}

void Executor::move_by_channel(const Item& item, const Said& said, const Round& round) {
  const Request& request = *item.request;
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
      for (int member : active_) {
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
    const std::byte* brought = channel_->inline_data(member);  // ours may be in its place already
    if (place.count != 0 && place.data != brought) std::memmove(place.data, brought, place.bytes());
  }
}

// Everything is in the frames already.
void Executor::move_inline(const Item& item, const Said& said, const Round& round) {
  const Request& request = *item.request;
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
  for (int member : round.active) {
    // My own contribution is still hot where it came from.
    const auto* mine = static_cast<const std::byte*>(request.in.data);
    in.push_back((member == index() ? mine : channel_->inline_data(member)) + first);
    leaves.push_back({static_cast<uint64_t>(member), 0});
  }
  const std::vector<void*> out = {request.out.data};
  const auto contributors = static_cast<uint32_t>(round.active.size());
  if (is_exact(item.header)) {
    const auto instructions = plan_tree(leaves);
    reduce_tree({.dtype = request.in.dtype,
                 .divisor = request.op == ReduceOp::kAverage ? contributors : 1,
                 .instructions = instructions,
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
      for (const NodeArray& place : call.nodes[member]) {  // a node may reach beyond the last shard
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
