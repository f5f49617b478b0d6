// The payload half of SharedChannel: who reads and writes what between two meetings.
#include <algorithm>
#include <cstring>

#include "horon/base/error.h"
#include "horon/comm/arithmetic/reduce.h"
#include "horon/comm/engine/select.h"
#include "horon/comm/shared/channel.h"

namespace horon::shared {
namespace {

// Windows of an all-reduce stay in the second-level cache of the cores that fill and read them.
constexpr uint64_t kReduceWindow = 512U << 10;
constexpr uint64_t kGrain = 64;  // elements: no two members write one cache line
// Reducing in place costs a second meeting and saves the copy: measured, it pays from here on.
constexpr uint64_t kInlineReachable = 8U << 10;

int position_of(std::span<const int> active, int member) {
  return static_cast<int>(std::find(active.begin(), active.end(), member) - active.begin());
}

uint32_t divisor_of(const Round& round) { return static_cast<uint32_t>(round.active.size()); }

void copy_bytes(void* to, const void* from, uint64_t bytes) {
  if (bytes != 0 && to != from) std::memmove(to, from, bytes);
}

// The two ways that every operation has.
bool is_in_place(const Round& round, OpKind kind) {
  if (round.algorithm == Algorithm::kInPlace) return true;
  if (round.algorithm != Algorithm::kWindows) refuse(round, kind);
  return false;
}

}  // namespace

std::vector<AlgorithmRow> SharedChannel::algorithms(size_t inline_bytes) {
  std::vector<AlgorithmRow> rows;
  const auto add = [&](OpKind kind, Reduction reduction, uint64_t inline_in_place) {
    const auto put = [&](Algorithm algorithm, const Condition* only, uint64_t most_bytes) {
      rows.push_back({kind, algorithm, only, most_bytes, kAnyRanks, reduction, DeviceKind::kCpu});
    };
    const uint64_t first = std::min<uint64_t>(inline_in_place, inline_bytes);
    if (first != 0) put(Algorithm::kInline, &kFitsHeader, first);
    put(Algorithm::kInPlace, &kReachable, kAnyBytes);
    if (first != 0 && first < inline_bytes) put(Algorithm::kInline, &kFitsHeader, inline_bytes);
    put(Algorithm::kWindows, nullptr, kAnyBytes);
  };
  add(OpKind::kAllReduce, Reduction::kFast, kInlineReachable);
  add(OpKind::kAllReduce, Reduction::kExact, kInlineReachable);
  add(OpKind::kReduceScatter, Reduction::kFast, kAnyBytes);
  add(OpKind::kAllGather, Reduction::kFast, kAnyBytes);
  add(OpKind::kBroadcast, Reduction::kFast, kAnyBytes);
  add(OpKind::kAllToAll, Reduction::kFast, 0);
  return rows;
}

void SharedChannel::for_windows(uint64_t total, uint64_t window,
                                const std::function<void(uint64_t lo, uint64_t hi)>& body) {
  for (uint64_t lo = 0; lo < total; lo += window) body(lo, std::min(total, lo + window));
}

// Each active member reduces one run of elements of all buffers and writes it to all of them.
void SharedChannel::reduce_in_place(const Round& round, std::span<char* const> buffers,
                                    uint64_t count, const BufferView& like, ReduceOp op) const {
  const auto runs = cut_evenly(count, round.active.size(), kGrain);
  const int me = position_of(round.active, index_);
  std::vector<void*> out(buffers.size());
  for (size_t k = 0; k < buffers.size(); ++k) out[k] = buffers[k] + runs[me] * size_of(like.dtype);
  const std::vector<const void*> in(out.begin(), out.end());
  reduce({.dtype = like.dtype,
          .op = op,
          .divisor = divisor_of(round),
          .in = in,
          .out = out,
          .count = runs[me + 1] - runs[me]});
}

void SharedChannel::all_reduce(const Round& round, BufferView data, ReduceOp op) {
  if (is_in_place(round, OpKind::kAllReduce)) {
    std::vector<char*> buffers;
    for (int member : round.active)
      buffers.push_back(region_->resolve(round.headers[member].address));
    reduce_in_place(round, buffers, data.count, data, op);
    next_phase(round);
    return;
  }
  const uint64_t window = kReduceWindow / size_of(data.dtype);
  for_windows(data.count, window,
              [&](uint64_t lo, uint64_t hi) { reduce_window(round, data.slice(lo, hi - lo), op); });
}

// Memory that peers cannot reach: I show them the runs that they own, reduce mine, and take theirs.
void SharedChannel::reduce_window(const Round& round, BufferView part, ReduceOp op) {
  const size_t width = size_of(part.dtype);
  const auto runs = cut_evenly(part.count, round.active.size(), kGrain);
  const int me = position_of(round.active, index_);
  auto* mine = static_cast<char*>(part.data);
  const auto bytes = [&](size_t k) { return (runs[k + 1] - runs[k]) * width; };
  const auto n = round.active.size();
  for (size_t k = 0; k < n; ++k) {
    if (round.active[k] != index_)
      copy_bytes(stage(index_) + runs[k] * width, mine + runs[k] * width, bytes(k));
  }
  next_phase(round);
  std::vector<const void*> in;
  for (int member : round.active)
    in.push_back((member == index_ ? mine : stage(member)) + runs[me] * width);
  const std::vector<void*> out = {mine + runs[me] * width, stage(index_) + runs[me] * width};
  reduce({.dtype = part.dtype,
          .op = op,
          .divisor = divisor_of(round),
          .in = in,
          .out = out,
          .count = runs[me + 1] - runs[me]});
  next_phase(round);
  for (size_t k = 0; k < n; ++k) {
    const int owner = round.active[k];
    if (owner != index_)
      copy_bytes(mine + runs[k] * width, stage(owner) + runs[k] * width, bytes(k));
  }
  next_phase(round);  // what follows may cut the stage in another way
}

void SharedChannel::reduce_scatter(const Round& round, BufferView in, BufferView out,
                                   std::span<const uint64_t> offsets, ReduceOp op) {
  const size_t width = size_of(in.dtype);
  const bool direct = is_in_place(round, OpKind::kReduceScatter);
  const uint64_t window = kStageBytes / width / members_.size();
  uint64_t longest = 0;
  for (int member : round.active)
    longest = std::max(longest, offsets[member + 1] - offsets[member]);
  // Staged: window w of every member's segment side by side in each member's stage.
  for_windows(longest, direct ? longest : window, [&](uint64_t lo, uint64_t hi) {
    for (int member : round.active) {
      const uint64_t end = std::min(offsets[member] + hi, offsets[member + 1]);
      const uint64_t begin = std::min(offsets[member] + lo, end);
      if (direct) break;
      copy_bytes(stage(index_) + static_cast<uint64_t>(member) * window * width,
                 static_cast<const char*>(in.data) + begin * width, (end - begin) * width);
    }
    if (!direct) next_phase(round);
    std::vector<const void*> sources;
    for (int member : round.active) {
      sources.push_back(direct ? region_->resolve(round.headers[member].address) +
                                     offsets[index_] * width
                               : stage(member) + static_cast<uint64_t>(index_) * window * width);
    }
    const uint64_t end = std::min(hi, out.count);
    const uint64_t begin = std::min(lo, end);
    const std::vector<void*> target = {static_cast<char*>(out.data) + begin * width};
    reduce({.dtype = in.dtype,
            .op = op,
            .divisor = divisor_of(round),
            .in = sources,
            .out = target,
            .count = end - begin});
    next_phase(round);
  });
}

void SharedChannel::all_gather(const Round& round, BufferView in, BufferView out,
                               std::span<const uint64_t> offsets) {
  const size_t width = size_of(in.dtype);
  const bool direct = is_in_place(round, OpKind::kAllGather);
  uint64_t longest = 0;
  for (int member : round.active)
    longest = std::max(longest, offsets[member + 1] - offsets[member]);
  for_windows(longest, direct ? longest : kStageBytes / width, [&](uint64_t lo, uint64_t hi) {
    if (!direct) {
      const uint64_t end = std::min(hi, in.count);
      const uint64_t begin = std::min(lo, end);
      copy_bytes(stage(index_), static_cast<const char*>(in.data) + begin * width,
                 (end - begin) * width);
      next_phase(round);
    }
    for (int member : round.active) {
      const uint64_t end = std::min(offsets[member] + hi, offsets[member + 1]);
      const uint64_t begin = std::min(offsets[member] + lo, end);
      const char* from = direct ? region_->resolve(round.headers[member].address) : stage(member);
      copy_bytes(static_cast<char*>(out.data) + begin * width, from, (end - begin) * width);
    }
    next_phase(round);
  });
}

void SharedChannel::broadcast(const Round& round, BufferView data, int root) {
  const size_t width = size_of(data.dtype);
  const uint64_t address = round.headers[root].address;
  const bool direct = is_in_place(round, OpKind::kBroadcast);
  for_windows(data.count, direct ? data.count : kStageBytes / width, [&](uint64_t lo, uint64_t hi) {
    char* mine = static_cast<char*>(data.data) + lo * width;
    if (!direct) {
      if (index_ == root) copy_bytes(stage(root), mine, (hi - lo) * width);
      next_phase(round);
    }
    if (index_ != root)
      copy_bytes(mine, direct ? region_->resolve(address) : stage(root), (hi - lo) * width);
    next_phase(round);
  });
}

void SharedChannel::all_to_all(const Round& round, BufferView in, BufferView out,
                               const std::vector<std::vector<uint64_t>>& sends) {
  const size_t width = size_of(in.dtype);
  const bool direct = is_in_place(round, OpKind::kAllToAll);
  const uint64_t window = kStageBytes / width / members_.size();
  uint64_t longest = 0;
  for (int from : round.active) {
    for (int to : round.active) longest = std::max(longest, sends[from][to]);
  }
  std::vector<uint64_t> received(members_.size(), 0);
  for (int from : round.active) received[from] = sends[from][index_];
  const auto my_offsets = offsets_of(sends[index_]);
  const auto out_offsets = offsets_of(received);
  for_windows(longest, direct ? longest : window, [&](uint64_t lo, uint64_t hi) {
    for (int to : round.active) {
      if (direct) break;
      const uint64_t end = std::min(hi, sends[index_][to]);
      const uint64_t begin = std::min(lo, end);
      copy_bytes(stage(index_) + static_cast<uint64_t>(to) * window * width,
                 static_cast<const char*>(in.data) + (my_offsets[to] + begin) * width,
                 (end - begin) * width);
    }
    if (!direct) next_phase(round);
    for (int from : round.active) {
      const uint64_t end = std::min(hi, sends[from][index_]);
      const uint64_t begin = std::min(lo, end);
      const char* source = direct ? region_->resolve(round.headers[from].address) +
                                        offsets_of(sends[from])[index_] * width
                                  : stage(from) + static_cast<uint64_t>(index_) * window * width;
      copy_bytes(static_cast<char*>(out.data) + (out_offsets[from] + begin) * width, source,
                 (end - begin) * width);
    }
    next_phase(round);
  });
}

// Every member finishes the tree for its run of elements and writes it to all outputs: in place, or
// window by window, nodes and one output side by side.
void SharedChannel::reduce_tree(const Round& round, const TreeCall& call) {
  const size_t width = size_of(call.dtype);
  const bool direct = is_in_place(round, OpKind::kAllReduce);
  size_t most_nodes = 0;
  std::vector<TreeNode> leaves;
  for (int member : round.active) {
    most_nodes = std::max(most_nodes, call.nodes[member].size());
    for (const NodeArray& place : call.nodes[member]) leaves.push_back(place.node);
  }
  const auto instructions = plan_tree(leaves);
  const uint64_t window = direct ? call.out.count : kStageBytes / width / (most_nodes + 1);
  require(window > 0 || call.out.count == 0,
          "exact sum: too many nodes on one rank; use heap memory");
  for_windows(call.out.count, window, [&](uint64_t lo, uint64_t hi) {
    const uint64_t bytes = (hi - lo) * width;
    for (size_t j = 0; j < call.mine.size() && !direct; ++j) {
      copy_bytes(stage(index_) + j * bytes, static_cast<const char*>(call.mine[j]) + lo * width,
                 bytes);
    }
    if (!direct) next_phase(round);
    const auto runs = cut_evenly(hi - lo, round.active.size(), kGrain);
    const int me = position_of(round.active, index_);
    const uint64_t skip = runs[me] * width;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (int member : round.active) {
      for (size_t j = 0; j < call.nodes[member].size(); ++j) {
        const uint64_t address = call.nodes[member][j].address;
        in.push_back((direct ? region_->resolve(address) : stage(member) + j * bytes) + skip);
      }
      out.push_back((direct ? region_->resolve(round.headers[member].out_address)
                            : stage(member) + most_nodes * bytes) +
                    skip);
    }
    horon::reduce_tree({.dtype = call.dtype,
                        .divisor = call.divisor,
                        .instructions = instructions,
                        .in = in,
                        .out = out,
                        .count = runs[me + 1] - runs[me]});
    next_phase(round);
    if (!direct)
      copy_bytes(static_cast<char*>(call.out.data) + lo * width, stage(index_) + most_nodes * bytes,
                 bytes);
  });
}

}  // namespace horon::shared
