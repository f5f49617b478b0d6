#include "horon/comm/hier/hier_backend.h"

#include <algorithm>
#include <cstring>

#include "horon/base/error.h"
#include "horon/comm/arithmetic/reduce.h"
#include "horon/comm/engine/select.h"
#include "horon/comm/p2p/channel.h"

namespace horon {
namespace {

constexpr uint64_t kGrain = 64;  // elements
// Who waits for somebody that waits himself has more patience: the one next to the culprit names
// it.
constexpr Milliseconds kGrace{300};
constexpr uint64_t kWindowBytes = 64U << 20;

constexpr Condition kNobodyJoined{"nobody has joined",
                                  [](const Situation& situation) { return situation.everybody; }};
// Rounding between the levels would cost 16-bit floats a bit, and integer averages their meaning.
constexpr Condition kTwoRoundings{
    "nobody has joined; no f16, bf16, average of integers", [](const Situation& situation) {
      const bool narrow = situation.dtype == DType::kF16 || situation.dtype == DType::kBF16;
      const bool integer_average = situation.op == ReduceOp::kAverage && !is_float(situation.dtype);
      return situation.everybody && !narrow && !integer_average;
    }};

uint64_t derive(uint64_t id, uint64_t role) { return (id ^ role * 0x9e3779b97f4a7c15ULL) | 1; }

// Members by host, as indices into the members; hosts without a member are left out.
std::vector<std::vector<int>> split_by_host(const Topology& topology,
                                            std::span<const int> members) {
  std::vector<std::vector<int>> hosts(topology.hosts.size());
  for (size_t i = 0; i < members.size(); ++i) {
    hosts[topology.host_of(members[i])].push_back(static_cast<int>(i));
  }
  std::erase_if(hosts, [](const auto& host) { return host.empty(); });
  return hosts;
}

class HierChannel final : public Channel {
 public:
  HierChannel(const Topology& topology, std::shared_ptr<Backend> local,
              const std::shared_ptr<Transport>& cross, std::vector<int> members, uint64_t id)
      : members_(std::move(members)),
        hosts_(split_by_host(topology, members_)),
        backend_(std::move(local)),
        transport_(cross),
        id_(id),
        local_ways_(backend_->algorithms()),
        headers_(members_.size()),
        frames_(members_.size() * P2pChannel::kFrameBytes) {
    index_ = position_in(members_, topology.rank);
    const auto has_me = [&](const auto& host) {
      return std::find(host.begin(), host.end(), index_) != host.end();
    };
    mine_ = *std::find_if(hosts_.begin(), hosts_.end(), has_me);
    position_ = static_cast<int>(std::find(mine_.begin(), mine_.end(), index_) - mine_.begin());
    std::vector<int> local_ranks;
    for (int member : mine_) local_ranks.push_back(local_rank_of(topology, members_[member]));
    local_ = backend_->open_channel(local_ranks, derive(id, 2));
    rails_ = hosts_.front().size();
    for (const auto& host : hosts_) rails_ = std::min(rails_, host.size());
    if (position_ == 0) leaders_ = open_rail(cross, 0, derive(id, 3));
    if (position_ < static_cast<int>(rails_)) {
      rail_ = open_rail(cross, position_, derive(id, 16 + static_cast<uint64_t>(position_)));
    }
  }

  int index() const override { return index_; }
  int size() const override { return static_cast<int>(members_.size()); }
  size_t inline_bytes() const override { return P2pChannel::kFrameBytes - sizeof(Header); }
  std::span<const Header> headers() const override { return headers_; }
  uint64_t address_of(const BufferView& view) const override { return local_->address_of(view); }
  const std::byte* inline_data(int member) const override { return frame(member) + sizeof(Header); }

  // Inside the host, between the leaders, and back.
  void arrive(const Header& header, std::span<const std::byte> inline_data,
              Milliseconds timeout) override {
    headers_[index_] = header;
    guarded([&] {
      local_->arrive(header, inline_data, timeout);
      for (size_t i = 0; i < mine_.size(); ++i) {
        std::memcpy(frame(mine_[i]), &local_->headers()[i], sizeof(Header));
        std::memcpy(frame(mine_[i]) + sizeof(Header), local_->inline_data(static_cast<int>(i)),
                    inline_bytes());
      }
      if (leaders_) swap_frames(timeout + kGrace);
      const size_t step =
          local_->inline_bytes() / P2pChannel::kFrameBytes * P2pChannel::kFrameBytes;
      for (size_t at = 0; at < frames_.size(); at += step) {
        const size_t bytes = std::min(step, frames_.size() - at);
        const std::span<const std::byte> told(frames_.data() + at, leaders_ ? bytes : 0);
        local_->arrive(header, told, timeout + 2 * kGrace);
        if (!leaders_) std::memcpy(frames_.data() + at, local_->inline_data(0), bytes);
      }
    });
    for (int member = 0; member < size(); ++member) {
      std::memcpy(&headers_[member], frame(member), sizeof(Header));
    }
  }

  void all_reduce(const Round& round, BufferView data, ReduceOp op) override {
    guarded([&] {
      if (round.algorithm == Algorithm::kTwoLevel) return reduce_two_levels(round, data, op);
      flat().all_reduce(flat_round(round, OpKind::kAllReduce), data, op);
    });
  }
  void reduce_scatter(const Round& round, BufferView in, BufferView out,
                      std::span<const uint64_t> offsets, ReduceOp op) override {
    guarded([&] {
      flat().reduce_scatter(flat_round(round, OpKind::kReduceScatter), in, out, offsets, op);
    });
  }
  void all_gather(const Round& round, BufferView in, BufferView out,
                  std::span<const uint64_t> offsets) override {
    guarded([&] { flat().all_gather(flat_round(round, OpKind::kAllGather), in, out, offsets); });
  }
  void all_to_all(const Round& round, BufferView in, BufferView out,
                  const std::vector<std::vector<uint64_t>>& sends) override {
    guarded([&] { flat().all_to_all(flat_round(round, OpKind::kAllToAll), in, out, sends); });
  }
  void reduce_tree(const Round& round, const TreeCall& call) override {
    guarded([&] {
      flat().reduce_tree(flat_round(round, OpKind::kAllReduce, Reduction::kExact), call);
    });
  }

  void broadcast(const Round& round, BufferView data, int root) override {
    guarded([&] {
      if (round.algorithm == Algorithm::kTwoLevel) return broadcast_two_levels(round, data, root);
      flat().broadcast(flat_round(round, OpKind::kBroadcast), data, root);
    });
  }

 private:
  // A round of everybody on one of our inner channels, whose own list says which way.
  struct AllOf {
    AllOf(size_t count, Milliseconds timeout)
        : active(count), round{{}, {}, timeout, Algorithm::kFlat} {
      for (size_t i = 0; i < count; ++i) active[i] = static_cast<int>(i);
      round.active = active;
    }
    const Round& by(const AlgorithmTable& ways, Situation situation) {
      situation.ranks = static_cast<int>(active.size());
      round.algorithm = ways.choose(situation);
      return round;
    }
    std::vector<int> active;
    Round round;
  };
  // The headers of this host's members; addresses moved by `skip` bytes.
  struct LocalRound : AllOf {
    LocalRound(const HierChannel& channel, const Round& outer, uint64_t skip)
        : LocalRound(channel, outer, std::vector<uint64_t>(channel.mine_.size(), skip)) {}
    LocalRound(const HierChannel& channel, const Round& outer, const std::vector<uint64_t>& skips)
        : AllOf(channel.mine_.size(), outer.timeout) {
      for (size_t i = 0; i < channel.mine_.size(); ++i) {
        headers.push_back(outer.headers[channel.mine_[i]]);
        if (headers.back().address != kNoAddress) headers.back().address += skips[i];
      }
      round.headers = headers;
    }
    bool is_reachable(size_t member) const { return headers[member].address != kNoAddress; }
    bool all_reachable() const {
      return std::all_of(headers.begin(), headers.end(),
                         [](const Header& one) { return one.address != kNoAddress; });
    }
    std::vector<Header> headers;
  };

  static int local_rank_of(const Topology& topology, int rank) {
    return position_in(topology.hosts[topology.host_of(rank)], rank);
  }
  static int position_in(const std::vector<int>& list, int value) {
    return static_cast<int>(std::find(list.begin(), list.end(), value) - list.begin());
  }
  std::byte* frame(int member) {
    return frames_.data() + static_cast<size_t>(member) * P2pChannel::kFrameBytes;
  }
  const std::byte* frame(int member) const {
    return frames_.data() + static_cast<size_t>(member) * P2pChannel::kFrameBytes;
  }

  std::unique_ptr<P2pChannel> open_rail(const std::shared_ptr<Transport>& cross, int position,
                                        uint64_t id) {
    std::vector<int> ranks;
    for (const auto& host : hosts_) ranks.push_back(members_[host[static_cast<size_t>(position)]]);
    return std::make_unique<P2pChannel>(cross, ranks, id);
  }

  // Leaders tell each other all frames of their hosts. Hosts' members need not be neighbours in
  // rank: frames travel packed by host.
  void swap_frames(Milliseconds timeout) {
    constexpr size_t kBytes = P2pChannel::kFrameBytes;
    std::vector<uint64_t> counts;
    for (const auto& host : hosts_) counts.push_back(host.size() * kBytes);
    const auto offsets = offsets_of(counts);
    std::vector<uint8_t> packed(offsets.back());
    for (size_t h = 0; h < hosts_.size(); ++h) {
      for (size_t i = 0; i < hosts_[h].size(); ++i) {
        std::memcpy(packed.data() + offsets[h] + i * kBytes, frame(hosts_[h][i]), kBytes);
      }
    }
    const BufferView all_frames = view_of(packed);
    const auto me = static_cast<size_t>(leaders_->index());
    AllOf all(hosts_.size(), timeout);
    leaders_->all_gather(
        all.by(cross_ways_, {.kind = OpKind::kAllGather, .bytes = all_frames.bytes()}),
        all_frames.slice(offsets[me], counts[me]), all_frames, offsets);
    for (size_t h = 0; h < hosts_.size(); ++h) {
      for (size_t i = 0; i < hosts_[h].size(); ++i) {
        std::memcpy(frame(hosts_[h][i]), packed.data() + offsets[h] + i * kBytes, kBytes);
      }
    }
  }

  // Between all ranks, hosts or not. Opened with the first operation that needs it, the same on
  // all.
  P2pChannel& flat() {
    if (!flat_) flat_ = std::make_unique<P2pChannel>(transport_, members_, derive(id_, 1));
    return *flat_;
  }
  // The same round there.
  Round flat_round(const Round& round, OpKind kind, Reduction reduction = Reduction::kFast) const {
    if (round.algorithm != Algorithm::kFlat) refuse(round, kind);
    Situation situation{.kind = kind, .reduction = reduction};
    situation.ranks = static_cast<int>(round.active.size());
    for (int member : round.active) {
      const Header& header = round.headers[member];
      situation.bytes = std::max(situation.bytes, header.count * size_of(header.dtype));
    }
    Round inner = round;
    inner.algorithm = cross_ways_.choose(situation);
    return inner;
  }

  // The root's host first (its leader needs the data), then the leaders, then the other hosts.
  void broadcast_two_levels(const Round& round, BufferView data, int root) {
    const auto host = std::find_if(hosts_.begin(), hosts_.end(), [&](const auto& one) {
      return std::find(one.begin(), one.end(), root) != one.end();
    });
    const bool is_here = *host == mine_;
    const int local_root = is_here ? position_in(*host, root) : 0;
    const size_t width = size_of(data.dtype);
    for (uint64_t lo = 0; lo < data.count; lo += kWindowBytes / width) {
      const BufferView part =
          data.slice(lo, std::min<uint64_t>(kWindowBytes / width, data.count - lo));
      const Situation situation{.kind = OpKind::kBroadcast, .bytes = part.bytes()};
      LocalRound local(*this, round, lo * width);
      Situation inside = situation;
      inside.reachable = local.is_reachable(static_cast<size_t>(local_root));
      local.by(local_ways_, inside);
      if (is_here) local_->broadcast(local.round, part, local_root);
      if (leaders_) {
        AllOf all(hosts_.size(), round.timeout);
        leaders_->broadcast(all.by(cross_ways_, situation), part,
                            static_cast<int>(host - hosts_.begin()));
      }
      if (is_here) continue;
      local_->arrive(round.headers[index_], {},
                     round.timeout);  // nobody reads before the leader has it
      local_->broadcast(local.round, part, local_root);
    }
  }

  // In windows, so that members that only wait for the others meet them often: each is progress.
  void reduce_two_levels(const Round& round, BufferView data, ReduceOp op) {
    const uint64_t window = kWindowBytes / size_of(data.dtype);
    for (uint64_t lo = 0; lo < data.count; lo += window) {
      reduce_window(round, data.slice(lo, std::min(window, data.count - lo)),
                    lo * size_of(data.dtype), op);
    }
  }

  // `skip`: bytes from the beginning of the whole buffer, whose address peers know.
  void reduce_window(const Round& round, BufferView data, uint64_t skip, ReduceOp op) {
    const size_t width = size_of(data.dtype);
    auto runs = cut_evenly(data.count, rails_, kGrain);
    runs.resize(mine_.size() + 1, data.count);  // members beyond the rails own nothing
    const BufferView share = data.slice(runs[position_], runs[position_ + 1] - runs[position_]);
    const ReduceOp inner = op == ReduceOp::kAverage ? ReduceOp::kSum : op;
    LocalRound whole(*this, round, skip);
    local_->reduce_scatter(whole.by(local_ways_, {.kind = OpKind::kReduceScatter,
                                                  .bytes = data.bytes(),
                                                  .reachable = whole.all_reachable()}),
                           data, share, runs, inner);
    if (rail_) {
      AllOf all(hosts_.size(), round.timeout);
      rail_->all_reduce(all.by(cross_ways_, {.kind = OpKind::kAllReduce, .bytes = share.bytes()}),
                        share, inner);
      if (op == ReduceOp::kAverage) divide(share, static_cast<uint32_t>(members_.size()));
    }
    std::vector<uint64_t> skips(runs.begin(), runs.end() - 1);
    for (uint64_t& one : skips) one = one * width + skip;
    // A meeting first: nobody may read a share before its owner has finished it.
    LocalRound shares(*this, round, skips);
    local_->arrive(round.headers[index_], {}, round.timeout);
    local_->all_gather(shares.by(local_ways_, {.kind = OpKind::kAllGather,
                                               .bytes = data.bytes(),
                                               .reachable = shares.all_reachable()}),
                       share, data, runs);
  }

  static void divide(const BufferView& data, uint32_t by) {
    const std::vector<const void*> in = {data.data};
    const std::vector<void*> out = {data.data};
    reduce({.dtype = data.dtype,
            .op = ReduceOp::kAverage,
            .divisor = by,
            .in = in,
            .out = out,
            .count = data.count});
  }

  // A failure on one level ends the other: nobody is left waiting.
  template <typename Body>
  void guarded(Body body) {
    try {
      body();
    } catch (const Error& error) {
      if (const auto failure = failure_of(error)) {
        backend_->mark_dead(*failure);
        transport_->mark_dead(*failure);
      }
      throw;
    }
  }

  std::vector<int> members_;
  std::vector<std::vector<int>> hosts_;  // members by host
  std::vector<int> mine_;                // those of this host
  int index_ = 0;
  int position_ = 0;  // among mine_
  size_t rails_ = 1;  // local ranks that talk to other hosts
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Transport> transport_;
  uint64_t id_;
  AlgorithmTable local_ways_;
  AlgorithmTable cross_ways_{P2pChannel::algorithms(false)};  // without headers nothing is inline
  std::unique_ptr<P2pChannel> flat_;
  std::unique_ptr<Channel> local_;
  std::unique_ptr<P2pChannel> leaders_;  // only on the first member of a host
  std::unique_ptr<P2pChannel> rail_;     // only on the first `rails_` members
  std::vector<Header> headers_;
  std::vector<std::byte> frames_;
};

class HierBackend final : public Backend {
 public:
  HierBackend(Topology topology, std::unique_ptr<Backend> local, std::shared_ptr<Transport> cross)
      : topology_(std::move(topology)), local_(std::move(local)), cross_(std::move(cross)) {}
  std::string name() const override {
    return "hier(" + local_->name() + "+" + cross_->name() + ")";
  }
  int rank() const override { return topology_.rank; }
  int size() const override { return topology_.size; }
  std::unique_ptr<Channel> open_channel(std::span<const int> members, uint64_t id) override {
    return std::make_unique<HierChannel>(topology_, local_, cross_,
                                         std::vector<int>(members.begin(), members.end()), id);
  }
  OwnedBuffer allocate(uint64_t count, DType dtype) override {
    return local_->allocate(count, dtype);
  }
  std::optional<Failure> failure() const override {
    const auto found = local_->failure();
    return found ? found : cross_->failure();
  }
  void mark_dead(const Failure& failure) override {
    local_->mark_dead(failure);
    cross_->mark_dead(failure);
  }
  double seconds_encrypting() const override { return cross_->seconds_encrypting(); }
  std::vector<AlgorithmRow> algorithms() const override { return hier_algorithms(); }

 private:
  Topology topology_;
  std::shared_ptr<Backend> local_;
  std::shared_ptr<Transport> cross_;
};

}  // namespace

std::vector<AlgorithmRow> hier_algorithms() {
  using enum OpKind;
  using enum Algorithm;
  constexpr uint64_t kSmall = P2pChannel::kFrameBytes - sizeof(Header);
  constexpr Reduction kExact = Reduction::kExact;
  return {
      {.kind = kAllReduce, .algorithm = kInline, .only = &kFitsHeader, .most_bytes = kSmall},
      // Smallest ones in a group: their sums have always been made in this order.
      {.kind = kAllReduce, .algorithm = kTwoLevel, .only = &kTwoRoundings, .most_bytes = kSmall},
      {.kind = kAllReduce, .algorithm = kFlat, .most_bytes = 16U << 10},
      {.kind = kAllReduce, .algorithm = kTwoLevel, .only = &kTwoRoundings},
      {.kind = kAllReduce, .algorithm = kFlat},
      {.kind = kAllReduce,
       .algorithm = kInline,
       .only = &kFitsHeader,
       .most_bytes = kSmall,
       .reduction = kExact},
      {.kind = kAllReduce, .algorithm = kFlat, .reduction = kExact},
      {.kind = kReduceScatter, .algorithm = kInline, .only = &kFitsHeader, .most_bytes = kSmall},
      {.kind = kReduceScatter, .algorithm = kFlat},
      {.kind = kAllGather, .algorithm = kInline, .only = &kFitsHeader, .most_bytes = kSmall},
      {.kind = kAllGather, .algorithm = kFlat},
      {.kind = kBroadcast, .algorithm = kInline, .only = &kFitsHeader, .most_bytes = kSmall},
      {.kind = kBroadcast, .algorithm = kTwoLevel, .only = &kNobodyJoined},
      {.kind = kBroadcast, .algorithm = kFlat},
      {.kind = kAllToAll, .algorithm = kFlat},
  };
}

std::vector<int> cross_peers(const Topology& topology, int rank) {
  const auto& host = topology.hosts[static_cast<size_t>(topology.host_of(rank))];
  const auto position =
      static_cast<size_t>(std::find(host.begin(), host.end(), rank) - host.begin());
  size_t rails = host.size();
  for (const auto& other : topology.hosts) rails = std::min(rails, other.size());
  std::vector<int> peers;
  for (const auto& other : topology.hosts) {
    if (position < rails && other[position] != rank) peers.push_back(other[position]);
  }
  return peers;
}

std::unique_ptr<Backend> make_hier_backend(const Topology& topology, std::unique_ptr<Backend> local,
                                           std::shared_ptr<Transport> cross) {
  cross->connect(cross_peers(topology, topology.rank));
  return std::make_unique<HierBackend>(topology, std::move(local), std::move(cross));
}

}  // namespace horon
