#include "horon/comm/hier/hier_backend.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/comm/engine/select.h"
#include "horon/comm/hier/levels.h"
#include "horon/comm/p2p/channel.h"

namespace horon {
namespace {

// A rank that waits for a waiting rank has a longer time limit, so that the one next to the culprit
// reports it.
constexpr Milliseconds kGrace{300};

uint64_t derive(uint64_t id, uint64_t role) { return (id ^ role * 0x9e3779b97f4a7c15ULL) | 1; }

std::vector<int> numbers(size_t count) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class HierChannel final : public Channel {
 public:
  HierChannel(const Topology& topology, std::shared_ptr<Backend> local,
              const std::shared_ptr<Transport>& cross, std::vector<int> members, uint64_t id)
      : topology_(topology),
        members_(std::move(members)),
        index_(position_in(members_, topology.rank)),
        backend_(std::move(local)),
        transport_(cross),
        id_(id),
        everybody_(topology, backend_, cross, members_, numbers(members_.size()), index_, id),
        headers_(members_.size()),
        frames_(members_.size() * P2pChannel::kFrameBytes) {}

  int index() const override { return index_; }
  int size() const override { return static_cast<int>(members_.size()); }
  size_t inline_bytes() const override { return P2pChannel::kFrameBytes - sizeof(Header); }
  std::span<const Header> headers() const override { return headers_; }
  uint64_t address_of(const BufferView& view) const override {
    return everybody_.local().address_of(view);
  }
  const std::byte* inline_data(int member) const override { return frame(member) + sizeof(Header); }

  // Inside the host, between the leaders (the first of each host), and back.
  void arrive(const Header& header, std::span<const std::byte> inline_data,
              Milliseconds timeout) override {
    headers_[index_] = header;
    guarded([&] {
      gather_here(header, inline_data, timeout);
      if (leads()) everybody_.connect_rail();
      if (are_many() && agree_by_digest(header, timeout)) return;
      if (leads()) swap_frames(timeout + kGrace);
      spread_frames(header, timeout + 2 * kGrace);
    });
    const bool some_joined = std::any_of(headers_.begin(), headers_.end(), [](const Header& one) {
      return one.kind == OpKind::kJoin;
    });
    ++arrivals_;
    if (!some_joined) some_.reset();
  }

  void all_reduce(const Round& round, BufferView data, ReduceOp op) override {
    guarded([&] {
      if (round.algorithm == Algorithm::kTwoLevel) return levels(round).all_reduce(round, data, op);
      flat().all_reduce(flat_round(round, OpKind::kAllReduce), data, op);
    });
  }
  void all_to_all(const Round& round, BufferView in, BufferView out,
                  const std::vector<std::vector<uint64_t>>& sends) override {
    guarded([&] {
      if (round.algorithm == Algorithm::kTwoLevel)
        return levels(round).all_to_all(round, in, out, sends);
      flat().all_to_all(flat_round(round, OpKind::kAllToAll), in, out, sends);
    });
  }
  void reduce_scatter(const Round& round, BufferView in, BufferView out,
                      std::span<const uint64_t> offsets, ReduceOp op) override {
    guarded([&] {
      two_levels(round, OpKind::kReduceScatter).reduce_scatter(round, in, out, offsets, op);
    });
  }
  void all_gather(const Round& round, BufferView in, BufferView out,
                  std::span<const uint64_t> offsets) override {
    guarded([&] { two_levels(round, OpKind::kAllGather).all_gather(round, in, out, offsets); });
  }
  void reduce_tree(const Round& round, const TreeCall& call) override {
    guarded([&] { two_levels(round, OpKind::kAllReduce).reduce_tree(round, call); });
  }
  void broadcast(const Round& round, BufferView data, int root) override {
    guarded([&] { two_levels(round, OpKind::kBroadcast).broadcast(round, data, root); });
  }

 private:
  static int position_in(const std::vector<int>& list, int value) {
    return static_cast<int>(std::find(list.begin(), list.end(), value) - list.begin());
  }
  std::byte* frame(int member) {
    return frames_.data() + static_cast<size_t>(member) * P2pChannel::kFrameBytes;
  }
  const std::byte* frame(int member) const {
    return frames_.data() + static_cast<size_t>(member) * P2pChannel::kFrameBytes;
  }

  bool leads() const { return everybody_.arrangement().position == 0; }
  bool are_many() const {
    return static_cast<int>(everybody_.arrangement().hosts.size()) >= P2pChannel::kMany;
  }

  // The frames of this host's members.
  void gather_here(const Header& header, std::span<const std::byte> inline_data,
                   Milliseconds timeout) {
    const auto& here = everybody_.arrangement().here();
    Channel& local = everybody_.local();
    local.arrive(header, inline_data, timeout);
    for (size_t i = 0; i < here.size(); ++i) {
      std::memcpy(frame(here[i]), &local.headers()[i], sizeof(Header));
      std::memcpy(frame(here[i]) + sizeof(Header), local.inline_data(static_cast<int>(i)),
                  inline_bytes());
    }
  }

  // Leaders combine the digests of all members. True if that is enough: headers_ are complete.
  bool agree_by_digest(const Header& header, Milliseconds timeout) {
    Channel& local = everybody_.local();
    HeaderDigest all;
    if (leads()) {
      const auto& here = everybody_.arrangement().here();
      const auto digest = [&](size_t i) { return digest_of(local.headers()[i], here[i]); };
      all = digest(0);
      for (size_t i = 1; i < here.size(); ++i) combine(all, digest(i));
      P2pChannel& leaders = *everybody_.rail();
      leaders.describe_as(header);
      all = leaders.combine_digests(all, timeout + kGrace);
    }
    const auto rounds = std::bit_width(everybody_.arrangement().hosts.size() - 1);
    local.arrive(header, std::as_bytes(std::span(&all, leads() ? 1 : 0)),
                 timeout + (rounds + 2) * kGrace);
    if (!leads()) std::memcpy(&all, local.inline_data(0), sizeof(all));
    if (all.needs_headers != 0) return false;
    fill_headers(headers_, header, all);
    return true;
  }

  // From the leader to the members of its host.
  void spread_frames(const Header& header, Milliseconds timeout) {
    Channel& local = everybody_.local();
    const size_t stride = local.inline_bytes() / P2pChannel::kFrameBytes * P2pChannel::kFrameBytes;
    for (size_t at = 0; at < frames_.size(); at += stride) {
      const size_t bytes = std::min(stride, frames_.size() - at);
      const std::span<const std::byte> told(frames_.data() + at, leads() ? bytes : 0);
      local.arrive(header, told, timeout);
      if (!leads()) std::memcpy(frames_.data() + at, local.inline_data(0), bytes);
    }
    for (int member = 0; member < size(); ++member)
      std::memcpy(&headers_[static_cast<size_t>(member)], frame(member), sizeof(Header));
  }

  // Leaders tell each other all frames of their hosts. Hosts' members need not be neighbours in
  // rank: frames travel packed by host.
  void swap_frames(Milliseconds timeout) {
    constexpr size_t kBytes = P2pChannel::kFrameBytes;
    const auto& hosts = everybody_.arrangement().hosts;
    std::vector<uint8_t> packed(frames_.size());
    std::vector<BufferView> segments;
    size_t at = 0;
    for (const auto& host : hosts) {
      segments.push_back(view_of(packed).slice(at, host.size() * kBytes));
      for (const int member : host) {
        std::memcpy(packed.data() + at, frame(member), kBytes);
        at += kBytes;
      }
    }
    P2pChannel& leaders = *everybody_.rail();
    leaders.describe_as(headers_[index_]);
    leaders.gather(segments[everybody_.arrangement().host], segments, timeout);
    at = 0;
    for (const auto& host : hosts) {
      for (const int member : host) {
        std::memcpy(frame(member), packed.data() + at, kBytes);
        at += kBytes;
      }
    }
  }

  // Of the members that contribute: fewer when some have joined. All of them make it at the same
  // operation: members only become fewer until all have joined, and then it is given up.
  hier::Levels& levels(const Round& round) {
    if (round.active.size() == members_.size()) return everybody_;
    const std::vector<int> active(round.active.begin(), round.active.end());
    if (!some_ || some_->active() != active) {
      some_.reset();
      const uint64_t hash = hash_bytes(&arrivals_, sizeof(arrivals_), id_);
      some_ = std::make_unique<hier::Levels>(topology_, backend_, transport_, members_, active,
                                             index_, derive(hash, 4));
    }
    return *some_;
  }

  hier::Levels& two_levels(const Round& round, OpKind kind) {
    if (round.algorithm != Algorithm::kTwoLevel) refuse(round, kind);
    return levels(round);
  }

  // Between all ranks, hosts or not. Opened with the first operation that needs it, the same on
  // all.
  P2pChannel& flat() {
    if (!flat_) {
      flat_ = std::make_unique<P2pChannel>(transport_, members_, derive(id_, 1));
      transport_->connect(members_);
    }
    flat_->describe_as(headers_[index_]);
    return *flat_;
  }
  // The same round there.
  Round flat_round(const Round& round, OpKind kind) const {
    if (round.algorithm != Algorithm::kFlat) refuse(round, kind);
    Situation situation{.kind = kind};
    situation.ranks = static_cast<int>(round.active.size());
    for (int member : round.active) {
      const Header& header = round.headers[member];
      situation.bytes = std::max(situation.bytes, header.count * size_of(header.dtype));
    }
    Round inner = round;
    inner.algorithm = cross_table_.choose(situation);
    return inner;
  }

  // A failure on one level ends the other, so that no member keeps waiting.
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

  Topology topology_;
  std::vector<int> members_;
  int index_;
  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Transport> transport_;
  uint64_t id_;
  uint64_t arrivals_ = 0;  // the same on all members
  hier::Levels everybody_;
  std::unique_ptr<hier::Levels> some_;  // of those that had not joined last time
  AlgorithmTable cross_table_{P2pChannel::algorithms(false)};
  std::unique_ptr<P2pChannel> flat_;
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
  std::vector<AlgorithmRow> rows;
  const auto add = [&](OpKind kind, Reduction reduction = Reduction::kFast) {
    const auto put = [&](Algorithm algorithm, const Condition* only, uint64_t most_bytes,
                         int most_ranks) {
      rows.push_back({.kind = kind,
                      .algorithm = algorithm,
                      .only = only,
                      .most_bytes = most_bytes,
                      .most_ranks = most_ranks,
                      .reduction = reduction});
    };
    const bool is_sum = kind == kAllReduce && reduction == Reduction::kFast;
    if (kind != kAllToAll) put(kInline, &kFitsHeader, kSmall, kAnyRanks);
    // The smallest sums of a group have always been made in two levels.
    if (is_sum) put(kTwoLevel, nullptr, kSmall, kAnyRanks);
    if (is_sum) put(kFlat, nullptr, 16U << 10, 8);
    // One rank carries all that its host's ranks send in an all_to_all: only where that is little.
    put(kTwoLevel, nullptr, kind == kAllToAll ? 16U << 20 : kAnyBytes, kAnyRanks);
    if (kind == kAllToAll) put(kFlat, nullptr, kAnyBytes, kAnyRanks);
  };
  add(kAllReduce);
  add(kAllReduce, Reduction::kExact);
  for (const OpKind kind : {kReduceScatter, kAllGather, kBroadcast, kAllToAll}) add(kind);
  return rows;
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
