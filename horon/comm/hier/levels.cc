#include "horon/comm/hier/levels.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "horon/base/error.h"
#include "horon/comm/arithmetic/reduce.h"

namespace horon::hier {
namespace {

constexpr uint64_t kGrain = 64;  // elements
// Between windows of this size all members of a host synchronise, so members that only wait see
// progress before their time limit.
constexpr uint64_t kWindowBytes = 64U << 20;

uint64_t derive(uint64_t id, uint64_t role) { return (id ^ role * 0x9e3779b97f4a7c15ULL) | 1; }

std::vector<int> numbers(size_t count) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// The type of partial results. In the narrow type 16-bit floats would be rounded twice, and sums
// for averages of integers could overflow.
DType partial_type(DType dtype, ReduceOp op) {
  const bool selects = op == ReduceOp::kMin || op == ReduceOp::kMax;
  const bool is_narrow = dtype == DType::kF16 || dtype == DType::kBF16;
  const bool integer_average = op == ReduceOp::kAverage && !is_float(dtype);
  return (is_narrow && !selects) || integer_average ? wide_type(dtype) : dtype;
}

ReduceOp partial_op(ReduceOp op) { return op == ReduceOp::kAverage ? ReduceOp::kSum : op; }

void copy(const BufferView& from, const BufferView& to) {
  if (from.count != 0 && from.data != to.data) std::memmove(to.data, from.data, from.bytes());
}

}  // namespace

Levels::Levels(const Topology& topology, std::shared_ptr<Backend> local,
               const std::shared_ptr<Transport>& cross, std::span<const int> ranks,
               std::vector<int> active, int index, uint64_t id)
    : backend_(std::move(local)),
      cross_(cross),
      active_(std::move(active)),
      index_(index),
      all_(arrange(topology, ranks, active_, index)),
      local_table_(backend_->algorithms()),
      everybody_here_(numbers(members())),
      all_hosts_(numbers(all_.hosts.size())) {
  const auto rank_of = [&](int member) { return ranks[static_cast<size_t>(member)]; };
  std::vector<int> local_ranks;
  const auto& host = topology.hosts[static_cast<size_t>(topology.host_of(rank_of(index)))];
  for (const int member : all_.here()) {
    const auto found = std::find(host.begin(), host.end(), rank_of(member));
    local_ranks.push_back(static_cast<int>(found - host.begin()));
  }
  local_ = backend_->open_channel(local_ranks, derive(id, 2));
  if (!all_.has_rail()) return;
  for (const auto& one : all_.hosts) rail_ranks_.push_back(rank_of(one[all_.position]));
  rail_ = std::make_unique<P2pChannel>(cross, rail_ranks_, derive(id, 16 + all_.position));
}

void Levels::connect_rail() {
  if (!rail_ranks_.empty()) cross_->connect(std::exchange(rail_ranks_, {}));
}

void Levels::begin(const Round& round) {
  header_ = round.headers[static_cast<size_t>(index_)];
  timeout_ = round.timeout;
  if (rail_) rail_->describe_as(header_);
  connect_rail();
}

Round Levels::inside(Situation situation, const BufferView& in, const BufferView& out) {
  Header header = header_;
  header.address = local_->address_of(in);
  header.out_address = local_->address_of(out);
  local_->arrive(header, {}, timeout_);
  situation.ranks = static_cast<int>(members());
  situation.reachable =
      std::all_of(local_->headers().begin(), local_->headers().end(), [&](const Header& one) {
        const bool needs_out = situation.reduction == Reduction::kExact;
        return one.address != kNoAddress && (!needs_out || one.out_address != kNoAddress);
      });
  return {local_->headers(), everybody_here_, timeout_, local_table_.choose(situation)};
}

Round Levels::across(OpKind kind, uint64_t bytes, Reduction reduction) const {
  const Situation situation{.kind = kind,
                            .reduction = reduction,
                            .bytes = bytes,
                            .ranks = static_cast<int>(all_.hosts.size())};
  return {{}, all_hosts_, timeout_, cross_table_.choose(situation)};
}

BufferView Levels::scratch(size_t which, uint64_t count, DType dtype) {
  if (scratch_.size() <= which) scratch_.resize(which + 1);
  OwnedBuffer& memory = scratch_[which];
  const uint64_t bytes = std::max<uint64_t>(count * size_of(dtype), 64);
  if (memory.view().bytes() < bytes) {
    memory = {};
    try {
      memory = backend_->allocate(bytes + bytes / 8, DType::kU8);
    } catch (const Error&) {  // no room on the heap that peers can read: they get copies
      memory = OwnedBuffer::host(bytes, DType::kU8);
    }
  }
  return {memory.view().data, count, dtype, {}};
}

std::vector<uint64_t> Levels::runs_of(uint64_t count) const {
  auto runs = cut_evenly(count, all_.rails, kGrain);
  runs.resize(members() + 1, count);
  return runs;
}

BufferView Levels::my_run(const BufferView& part) const {
  const auto runs = runs_of(part.count);
  return part.slice(runs[all_.position], runs[all_.position + 1] - runs[all_.position]);
}

void Levels::gather_runs(const BufferView& part) {
  const BufferView mine = my_run(part);
  const Round round = inside({.kind = OpKind::kAllGather, .bytes = part.bytes()}, mine, part);
  local_->all_gather(round, mine, part, runs_of(part.count));
}

void Levels::reduce_inside(const BufferView& part, const BufferView& run, ReduceOp op) {
  const DType type = partial_type(part.dtype, op);
  BufferView source = part;
  if (type != part.dtype) {
    source = scratch(kWide, part.count, type);
    widen(part.dtype, part.data, source.data, part.count);
  }
  const Round round =
      inside({.kind = OpKind::kReduceScatter, .bytes = source.bytes()}, source, run);
  local_->reduce_scatter(round, source, run, runs_of(part.count), partial_op(op));
}

void Levels::divide(const BufferView& data) const {
  const std::vector<const void*> in = {data.data};
  const std::vector<void*> out = {data.data};
  reduce({.dtype = data.dtype,
          .op = ReduceOp::kAverage,
          .divisor = static_cast<uint32_t>(active_.size()),
          .in = in,
          .out = out,
          .count = data.count});
}

void Levels::finish_wide(const BufferView& wide, const BufferView& out, ReduceOp op) const {
  if (op == ReduceOp::kAverage) divide(wide);
  if (wide.dtype == out.dtype) return copy(wide, out);
  narrow(out.dtype, wide.data, out.data, out.count);
}

// ---- all_reduce ----

void Levels::all_reduce(const Round& round, BufferView data, ReduceOp op) {
  begin(round);
  const uint64_t window = kWindowBytes / size_of(data.dtype);
  for (uint64_t lo = 0; lo < data.count; lo += window)
    reduce_window(data.slice(lo, std::min(window, data.count - lo)), op);
}

void Levels::reduce_window(const BufferView& part, ReduceOp op) {
  const BufferView mine = my_run(part);
  const DType type = partial_type(part.dtype, op);
  const bool is_wide = type != part.dtype;
  const BufferView sum = is_wide ? scratch(kParts, mine.count, type) : mine;
  reduce_inside(part, sum, op);
  if (rail_ && !is_wide) {
    rail_->all_reduce(across(OpKind::kAllReduce, mine.bytes()), mine, partial_op(op));
    if (op == ReduceOp::kAverage) divide(mine);
  } else if (rail_) {  // rounded by its owner, so that the wide type is sent in one direction only
    const auto runs = cut_evenly(mine.count, all_.hosts.size(), kGrain);
    const BufferView own = mine.slice(runs[all_.host], runs[all_.host + 1] - runs[all_.host]);
    const BufferView total = scratch(kWhole, own.count, type);
    rail_->reduce_scatter(across(OpKind::kReduceScatter, sum.bytes()), sum, total, runs,
                          partial_op(op));
    finish_wide(total, own, op);
    rail_->all_gather(across(OpKind::kAllGather, mine.bytes()), own, mine, runs);
  }
  gather_runs(part);
}

// ---- reduce_scatter, all_gather ----

void Levels::reduce_scatter(const Round& round, BufferView in, BufferView out,
                            std::span<const uint64_t> offsets, ReduceOp op) {
  begin(round);
  const Blocks blocks(all_, offsets);
  BufferView array = in;
  if (!blocks.are_contiguous()) {
    array = scratch(kPacked, blocks.total(), in.dtype);
    blocks.pack(in, array);
  }
  const uint64_t window = kWindowBytes / size_of(in.dtype) / all_.hosts.size();
  const auto& mine = blocks.inner(all_.host);
  for (uint64_t lo = 0; lo < blocks.longest(); lo += window) {
    const BufferView own = blocks.part(array, all_.host, lo, window);
    const BufferView whole = scratch(kWhole, own.count, in.dtype);
    scatter_window(blocks, array, lo, window, whole, op);
    gather_runs(whole);
    const uint64_t begin = std::clamp(mine[all_.position], lo, lo + own.count);
    const uint64_t end = std::clamp(mine[all_.position + 1], lo, lo + own.count);
    copy(whole.slice(begin - lo, end - begin),
         out.slice(begin - std::min(begin, mine[all_.position]), end - begin));
  }
}

// Sums elements [lo, lo + n) of every host's block; writes this member's run of its own host's
// block to `whole`.
void Levels::scatter_window(const Blocks& blocks, const BufferView& in, uint64_t lo, uint64_t n,
                            const BufferView& whole, ReduceOp op) {
  const DType type = partial_type(in.dtype, op);
  std::vector<uint64_t> counts;
  for (size_t host = 0; host < all_.hosts.size(); ++host)
    counts.push_back(my_run(blocks.part(in, host, lo, n)).count);
  const auto offsets = offsets_of(counts);
  const BufferView parts = scratch(kParts, offsets.back(), type);
  for (size_t host = 0; host < all_.hosts.size(); ++host) {
    const BufferView part = blocks.part(in, host, lo, n);
    if (part.count != 0) reduce_inside(part, parts.slice(offsets[host], counts[host]), op);
  }
  if (!rail_) return;
  const BufferView run = my_run(whole);
  const BufferView total = type == in.dtype ? run : scratch(kFirst, run.count, type);
  rail_->reduce_scatter(across(OpKind::kReduceScatter, parts.bytes()), parts, total, offsets,
                        partial_op(op));
  finish_wide(total, run, op);
}

void Levels::all_gather(const Round& round, BufferView in, BufferView out,
                        std::span<const uint64_t> offsets) {
  begin(round);
  const Blocks blocks(all_, offsets);
  const BufferView array =
      blocks.are_contiguous() ? out : scratch(kPacked, blocks.total(), out.dtype);
  const BufferView block = blocks.part(array, all_.host, 0, blocks.count(all_.host));
  const Round here = inside({.kind = OpKind::kAllGather, .bytes = block.bytes()}, in, block);
  local_->all_gather(here, in, block, blocks.inner(all_.host));
  const uint64_t window = kWindowBytes / size_of(out.dtype);
  for (uint64_t lo = 0; lo < blocks.longest(); lo += window) {
    std::vector<BufferView> runs;
    for (size_t host = 0; host < all_.hosts.size(); ++host)
      runs.push_back(my_run(blocks.part(array, host, lo, window)));
    if (rail_) rail_->gather(runs[all_.host], runs, timeout_);
    for (size_t host = 0; host < all_.hosts.size(); ++host) {
      const BufferView part = blocks.part(array, host, lo, window);
      if (host != all_.host && part.count != 0) gather_runs(part);
    }
  }
  if (!blocks.are_contiguous()) blocks.unpack(array, out);
}

// ---- broadcast ----

// Uses the root's rail, or the first one if the root has none.
void Levels::broadcast(const Round& round, BufferView data, int root) {
  begin(round);
  size_t from = 0;
  while (std::find(all_.hosts[from].begin(), all_.hosts[from].end(), root) ==
         all_.hosts[from].end())
    ++from;
  const auto& host = all_.hosts[from];
  const auto at = static_cast<size_t>(std::find(host.begin(), host.end(), root) - host.begin());
  const size_t carrier = at < all_.rails ? at : 0;
  const bool is_here = from == all_.host;
  const uint64_t window = kWindowBytes / size_of(data.dtype);
  for (uint64_t lo = 0; lo < data.count; lo += window) {
    const BufferView part = data.slice(lo, std::min(window, data.count - lo));
    const auto spread = [&] {
      const Situation situation{.kind = OpKind::kBroadcast, .bytes = part.bytes()};
      local_->broadcast(inside(situation, part, part), part,
                        static_cast<int>(is_here ? at : carrier));
    };
    if (is_here) spread();
    if (rail_ && all_.position == carrier)
      rail_->broadcast(across(OpKind::kBroadcast, part.bytes()), part, static_cast<int>(from));
    if (!is_here) spread();
  }
}

// ---- exact sums ----

// Each host folds its shards into nodes; then the tree over the nodes of all hosts is finished.
void Levels::reduce_tree(const Round& round, const TreeCall& call) {
  begin(round);
  std::vector<TreeNode> leaves;
  std::vector<size_t> owners;
  std::vector<std::pair<int, size_t>> holders;  // of each leaf: member, and which of its nodes
  for (size_t host = 0; host < all_.hosts.size(); ++host) {
    for (const int member : all_.hosts[host]) {
      const auto& nodes = call.nodes[static_cast<size_t>(member)];
      for (size_t j = 0; j < nodes.size(); ++j) {
        leaves.push_back(nodes[j].node);
        owners.push_back(host);
        holders.emplace_back(member, j);
      }
    }
  }
  const auto nodes = fold_by_owner(leaves, owners, all_.hosts.size());
  const uint64_t window = kWindowBytes / size_of(call.dtype);
  for (uint64_t lo = 0; lo < call.out.count; lo += window) {
    const BufferView out = call.out.slice(lo, std::min(window, call.out.count - lo));
    reduce_tree_window(call, lo, out, nodes, holders);
  }
}

void Levels::reduce_tree_window(const TreeCall& call, uint64_t lo, const BufferView& out,
                                const std::vector<std::vector<OwnedNode>>& nodes,
                                const std::vector<std::pair<int, size_t>>& holders) {
  const auto& here = nodes[all_.host];
  const uint64_t skip = lo * size_of(call.dtype);
  TreeCall between{call.dtype, call.divisor, {}, {}, my_run(out)};
  for (size_t k = 0; k < here.size(); ++k) {
    // The last sum is written to `out`, which may be the memory of a leaf.
    const BufferView sum = k + 1 == here.size() ? out : scratch(kNodes + k, out.count, call.dtype);
    TreeCall within{call.dtype, 1, std::vector<std::vector<NodeArray>>(members()), {}, sum};
    bool reachable = true;
    for (const uint32_t leaf : here[k].leaves) {
      const auto [member, which] = holders[leaf];
      NodeArray array = call.nodes[static_cast<size_t>(member)][which];
      if (array.address != kNoAddress) array.address += skip;
      reachable = reachable && array.address != kNoAddress;
      const auto position = static_cast<size_t>(
          std::find(all_.here().begin(), all_.here().end(), member) - all_.here().begin());
      within.nodes[position].push_back(array);
      if (member == index_)
        within.mine.push_back(static_cast<const std::byte*>(call.mine[which]) + skip);
    }
    const BufferView in = reachable ? sum : BufferView{};
    local_->reduce_tree(
        inside({.kind = OpKind::kAllReduce, .reduction = Reduction::kExact, .bytes = sum.bytes()},
               in, sum),
        within);
    between.mine.push_back(my_run(sum).data);
  }
  if (rail_) {
    for (const auto& host : nodes) {
      between.nodes.emplace_back();
      for (const OwnedNode& one : host) between.nodes.back().push_back({one.node, kNoAddress});
    }
    rail_->reduce_tree(across(OpKind::kAllReduce, out.bytes(), Reduction::kExact), between);
  }
  gather_runs(out);
}

}  // namespace horon::hier
