#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <numeric>

#include "horon/comm/communicator.h"
#include "horon/comm/hier/blocks.h"
#include "horon/comm/hier/hier_backend.h"
#include "horon/comm/shared/local.h"
#include "horon/comm/tcp/tcp_transport.h"
#include "tests/support/reference.h"
#include "tests/support/run_ranks.h"

namespace horon {
namespace {

using testing_support::check_reduced;
using testing_support::fill_random;
using testing_support::run_ranks;

// Host of each rank, by letter.
Topology topology_of(int rank, const std::string& hosts) {
  std::vector<std::string> names;
  for (const char host : hosts) names.emplace_back(1, host);
  return make_topology(rank, names);
}

// Adds up what leaves each rank for other ranks.
class CountingTransport final : public Transport {
 public:
  CountingTransport(std::shared_ptr<Transport> inner, std::string hosts,
                    std::atomic<uint64_t>& between_hosts, std::atomic<uint64_t>& inside_hosts,
                    std::atomic<uint64_t>& messages)
      : inner_(std::move(inner)),
        hosts_(std::move(hosts)),
        between_(between_hosts),
        inside_(inside_hosts),
        messages_(messages) {}
  std::string name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool takes_early() const override { return inner_->takes_early(); }
  uint64_t chunk_bytes(size_t members) const override { return inner_->chunk_bytes(members); }
  void connect(const std::vector<int>& peers) override { inner_->connect(peers); }
  void open_flow(uint64_t flow, const std::vector<int>& members) override {
    inner_->open_flow(flow, members);
  }
  void close_flow(uint64_t flow) override { inner_->close_flow(flow); }
  void mark_dead(const Failure& failure) override { inner_->mark_dead(failure); }
  std::optional<Failure> failure() const override { return inner_->failure(); }
  void exchange(const Exchange& exchange) override {
    count(exchange.messages);
    Exchange counted = exchange;
    if (exchange.received) {
      counted.received = [&](size_t index, const void* data, std::vector<Message>& more) {
        const size_t before = more.size();
        exchange.received(index, data, more);
        count(std::span(more).subspan(before));
      };
    }
    inner_->exchange(counted);
  }

 private:
  void count(std::span<const Message> messages) {
    const auto host = [&](int rank) { return hosts_[static_cast<size_t>(rank)]; };
    for (const Message& message : messages) {
      if (!message.is_send) continue;
      const bool is_inside = host(message.peer) == host(rank());
      (is_inside ? inside_ : between_) += message.bytes;
      messages_ += is_inside ? 0 : 1;
    }
  }

  std::shared_ptr<Transport> inner_;
  std::string hosts_;
  std::atomic<uint64_t>& between_;
  std::atomic<uint64_t>& inside_;
  std::atomic<uint64_t>& messages_;
};

// All ranks of a job on pretended hosts, each a thread: "AAAB" is three ranks on A and one on B.
class Hosts {
 public:
  explicit Hosts(const std::string& hosts, const std::string& algorithm = "") {
    const int size = static_cast<int>(hosts.size());
    std::map<char, std::vector<std::unique_ptr<Backend>>> local;
    for (const char host : hosts) {
      if (local.contains(host)) continue;
      const auto ranks = static_cast<int>(std::count(hosts.begin(), hosts.end(), host));
      local[host] = shared::make_local_backends(ranks, {4096, "auto"});
    }
    const auto store = make_memory_store();
    std::vector<std::future<std::unique_ptr<Communicator>>> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(std::async(std::launch::async, [&, rank] {
        const Topology topology = topology_of(rank, hosts);
        TcpOptions options;
        options.rank = rank;
        options.size = size;
        options.host_id = std::string(1, hosts[static_cast<size_t>(rank)]);
        auto cross = std::make_shared<CountingTransport>(make_tcp_transport(options, store, Log()),
                                                         hosts, between_, inside_, messages_);
        auto& mine =
            local[hosts[static_cast<size_t>(rank)]][static_cast<size_t>(topology.local_rank)];
        std::shared_ptr<Backend> backend = make_hier_backend(topology, std::move(mine), cross);
        return std::make_unique<Communicator>(
            backend, topology,
            Communicator::Settings{Milliseconds(20000), algorithm, {}, {}, store});
      }));
    }
    for (auto& rank : ranks) world_.push_back(rank.get());
  }

  // What all ranks together send between hosts, and over sockets inside them, during `body`, less
  // what agreement sends: the same body is first run without elements by the caller.
  struct Sent {
    uint64_t between = 0;
    uint64_t inside = 0;
    uint64_t messages = 0;  // between hosts
  };
  Sent run(const std::function<void(Communicator&)>& body) {
    const Sent before{between_, inside_, messages_};
    run_ranks(world_, body);
    return {between_ - before.between, inside_ - before.inside, messages_ - before.messages};
  }

 private:
  std::atomic<uint64_t> between_ = 0;
  std::atomic<uint64_t> inside_ = 0;
  std::atomic<uint64_t> messages_ = 0;
  std::vector<std::unique_ptr<Communicator>> world_;
};

OwnedBuffer input(int rank, uint64_t count, DType dtype, uint64_t seed) {
  OwnedBuffer buffer = OwnedBuffer::host(count, dtype);
  fill_random(buffer.view(), seed * 1000 + static_cast<uint64_t>(rank));
  return buffer;
}

std::vector<uint64_t> uneven(int size, uint64_t unit) {
  std::vector<uint64_t> counts;
  for (int rank = 0; rank < size; ++rank)
    counts.push_back(rank == 1 ? 0 : unit * static_cast<uint64_t>(rank + 1));
  return counts;
}

void check_reduce_scatter(Communicator& comm, DType dtype, ReduceOp op, uint64_t unit) {
  const auto counts = uneven(comm.size(), unit);
  const auto offsets = offsets_of(counts);
  const OwnedBuffer in = input(comm.rank(), offsets.back(), dtype, 7);
  const OwnedBuffer out = OwnedBuffer::host(counts[comm.rank()], dtype);
  comm.reduce_scatter(in.view(), out.view(), counts, {.op = op});
  EXPECT_EQ(check_reduced(out.view(), op, 7, 0, comm.size(), offsets[comm.rank()]), "")
      << name_of(dtype) << " " << name_of(op) << " rank " << comm.rank();
}

void check_all_gather(Communicator& comm, uint64_t unit) {
  const auto counts = uneven(comm.size(), unit);
  const auto offsets = offsets_of(counts);
  const OwnedBuffer in = input(comm.rank(), counts[comm.rank()], DType::kI32, 3);
  const OwnedBuffer out = OwnedBuffer::host(offsets.back(), DType::kI32);
  comm.all_gather(in.view(), out.view());
  for (int rank = 0; rank < comm.size(); ++rank) {
    const OwnedBuffer theirs = input(rank, counts[rank], DType::kI32, 3);
    EXPECT_EQ(std::memcmp(theirs.view().data, out.view().slice(offsets[rank], 0).data,
                          theirs.view().bytes()),
              0)
        << "of rank " << rank;
  }
}

uint64_t to_send(int from, int to, uint64_t unit) {
  return static_cast<uint64_t>((3 * from + 2 * to) % 4) * unit;
}

void check_all_to_all(Communicator& comm, uint64_t unit) {
  std::vector<uint64_t> sends;
  std::vector<uint64_t> receives;
  for (int peer = 0; peer < comm.size(); ++peer) {
    sends.push_back(to_send(comm.rank(), peer, unit));
    receives.push_back(to_send(peer, comm.rank(), unit));
  }
  const OwnedBuffer in = input(comm.rank(), offsets_of(sends).back(), DType::kI16, 5);
  const OwnedBuffer out = OwnedBuffer::host(offsets_of(receives).back(), DType::kI16);
  comm.all_to_all(in.view(), sends, out.view(), receives);
  const auto places = offsets_of(receives);
  for (int from = 0; from < comm.size(); ++from) {
    std::vector<uint64_t> theirs;
    for (int to = 0; to < comm.size(); ++to) theirs.push_back(to_send(from, to, unit));
    const OwnedBuffer sent = input(from, offsets_of(theirs).back(), DType::kI16, 5);
    const BufferView expected =
        sent.view().slice(offsets_of(theirs)[static_cast<size_t>(comm.rank())], receives[from]);
    EXPECT_EQ(std::memcmp(expected.data, out.view().slice(places[from], 0).data, expected.bytes()),
              0)
        << "from rank " << from << " to rank " << comm.rank();
  }
}

void check_all_reduce(Communicator& comm, DType dtype, ReduceOp op, uint64_t count) {
  const OwnedBuffer data = input(comm.rank(), count, dtype, 9);
  comm.all_reduce(data.view(), {.op = op});
  EXPECT_EQ(check_reduced(data.view(), op, 9, comm.rank(), comm.size()), "")
      << name_of(dtype) << " " << name_of(op) << " of " << count;
}

void check_broadcasts(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    const OwnedBuffer data = input(comm.rank(), 5001, DType::kF32, 11);
    const OwnedBuffer theirs = input(root, 5001, DType::kF32, 11);
    comm.broadcast(data.view(), root);
    EXPECT_EQ(std::memcmp(data.view().data, theirs.view().data, theirs.view().bytes()), 0);
  }
}

// Two shards a rank, dealt in blocks: the bits are those of one rank alone.
void check_exact(Communicator& comm, uint64_t shards_each) {
  const uint64_t shards = shards_each * static_cast<uint64_t>(comm.size());
  constexpr uint64_t kCount = 3001;
  ExactSum mine = comm.exact_sum(kCount, DType::kF32, shards);
  ExactSum alone(kCount, DType::kF32, shards,
                 [](uint64_t n, DType dtype) { return OwnedBuffer::host(n, dtype); });
  for (uint64_t shard = 0; shard < shards; ++shard) {
    const OwnedBuffer one = input(static_cast<int>(shard), kCount, DType::kF32, 13);
    alone.add(shard, one.view());
    if (shard / shards_each == static_cast<uint64_t>(comm.rank())) mine.add(shard, one.view());
  }
  const OwnedBuffer sum = OwnedBuffer::host(kCount, DType::kF32);
  comm.all_reduce(mine, sum.view());
  ASSERT_EQ(alone.kept().size(), 1U);
  EXPECT_EQ(std::memcmp(sum.view().data, alone.kept()[0].array.view().data, sum.view().bytes()), 0)
      << shards_each << " shards on each of " << comm.size();
}

class HierOperations : public testing::TestWithParam<const char*> {};

// Even and uneven hosts, ranks of a host side by side or dealt in turn.
TEST_P(HierOperations, GiveWhatAllRanksContributed) {
  Hosts hosts(GetParam());
  hosts.run([](Communicator& comm) {
    for (const DType dtype : all_dtypes()) {
      for (const ReduceOp op :
           {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax, ReduceOp::kProduct}) {
        if (dtype == DType::kBool && op == ReduceOp::kAverage) continue;
        for (const uint64_t count : {1'000, 20'003}) check_all_reduce(comm, dtype, op, count);
        check_reduce_scatter(comm, dtype, op, 401);
      }
    }
    for (const uint64_t unit : {1, 333, 5'000}) {
      check_all_gather(comm, unit);
      check_all_to_all(comm, unit);
    }
    check_broadcasts(comm);
    for (const uint64_t each : {1, 2, 3}) check_exact(comm, each);
  });
}

// Members of a sub-communicator that are connected already, and others that are not: the first
// operation has no message between some of them.
TEST(HierSubCommunicators, ConnectWhatTheirRailsNeed) {
  Hosts hosts("AAABBBCCC");
  hosts.run([](Communicator& comm) {
    for (const std::vector<int>& ranks :
         {std::vector<int>{0, 2, 3, 4, 6, 7}, {1, 2, 3, 5, 8}, {2, 4, 6}}) {
      const auto sub = comm.sub_communicator(ranks);
      if (!sub) continue;
      for (int root = sub->size() - 1; root >= 0; --root) {
        const OwnedBuffer data = input(sub->rank(), 2500, DType::kF32, 21);
        const OwnedBuffer theirs = input(root, 2500, DType::kF32, 21);
        sub->broadcast(data.view(), root);
        EXPECT_EQ(std::memcmp(data.view().data, theirs.view().data, theirs.view().bytes()), 0);
      }
    }
  });
}

// A low rank joins first: the others change places, and send where nobody was connected.
TEST(HierSubCommunicators, ConnectAfterALowRankHasJoined) {
  Hosts hosts("AAABBBCCC");
  hosts.run([](Communicator& comm) {
    if (comm.rank() != 3) {
      for (const int root : {4, 8, 1}) {
        const OwnedBuffer data = input(comm.rank(), 2500, DType::kF32, 22);
        const OwnedBuffer theirs = input(root, 2500, DType::kF32, 22);
        comm.broadcast(data.view(), root);
        EXPECT_EQ(std::memcmp(data.view().data, theirs.view().data, theirs.view().bytes()), 0);
      }
    }
    comm.join();
  });
}

// A rank after the other leaves; the others go on in two levels.
TEST_P(HierOperations, OfRanksThatHaveNotJoined) {
  Hosts hosts(GetParam());
  hosts.run([](Communicator& comm) {
    for (int round = 0; round < 2; ++round) {
      for (int left = comm.size(); left > comm.rank(); --left) {
        std::vector<float> sum(5'000, 1.0F);
        comm.all_reduce(view_of(sum), {.op = ReduceOp::kSum});
        EXPECT_EQ(sum, std::vector<float>(5'000, static_cast<float>(left)));
        std::vector<int8_t> average(30'000, static_cast<int8_t>(100 + comm.rank()));
        comm.all_reduce(view_of(average), {.op = ReduceOp::kAverage});
        EXPECT_EQ(average[29'999], 100 + (left - 1) / 2) << "of " << left;
        std::vector<int32_t> mine(700, comm.rank());
        const Gathered all = comm.all_gather(view_of(mine));
        EXPECT_EQ(all.data.view().count, 700U * static_cast<uint64_t>(left));
        for (int rank = 0; rank < left; ++rank)
          EXPECT_EQ(all.data.as<int32_t>()[static_cast<size_t>(rank) * 700 + 1], rank);
      }
      comm.join();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Arrangements, HierOperations,
                         testing::Values("AABB", "ABAB", "AAAB", "ABBB", "AABBC", "ABCABCA"),
                         [](const auto& one) { return std::string(one.param); });

// ---- what crosses ----

constexpr uint64_t kBytes = 8U << 20;  // of an array; two hosts with four ranks
constexpr uint64_t kAgreement = 256U << 10;

void expect_sent(const Hosts::Sent& sent, uint64_t bytes) {
  EXPECT_GE(sent.between, bytes);
  EXPECT_LE(sent.between, bytes + kAgreement);
  EXPECT_LE(sent.inside, kAgreement) << "over sockets inside a host";
}

TEST(HierBytes, AnAllReduceCrossesOnceInEachDirection) {
  Hosts hosts("AAAABBBB");
  const auto reduce = [](DType dtype, ReduceOp op) {
    return [=](Communicator& comm) {
      const OwnedBuffer data = input(comm.rank(), kBytes / size_of(dtype), dtype, 1);
      comm.all_reduce(data.view(), {.op = op});
    };
  };
  // Each host sends half of its sum to the other, and then the half that it has finished.
  expect_sent(hosts.run(reduce(DType::kF32, ReduceOp::kSum)), 2 * kBytes);
  expect_sent(hosts.run(reduce(DType::kI32, ReduceOp::kMax)), 2 * kBytes);
  // The first half as f32, so that there is one rounding.
  expect_sent(hosts.run(reduce(DType::kF16, ReduceOp::kSum)), 3 * kBytes);
  // As i64.
  expect_sent(hosts.run(reduce(DType::kI32, ReduceOp::kAverage)), 3 * kBytes);
}

TEST(HierBytes, SegmentsCrossOnce) {
  Hosts hosts("AAAABBBB");
  static constexpr uint64_t kEach = kBytes / 8 / sizeof(float);
  expect_sent(hosts.run([](Communicator& comm) {
    const OwnedBuffer in = input(comm.rank(), 8 * kEach, DType::kF32, 1);
    const OwnedBuffer out = OwnedBuffer::host(kEach, DType::kF32);
    comm.reduce_scatter(in.view(), out.view());
  }),
              kBytes);
  expect_sent(hosts.run([](Communicator& comm) {
    const OwnedBuffer in = input(comm.rank(), kEach, DType::kF32, 1);
    const OwnedBuffer out = OwnedBuffer::host(8 * kEach, DType::kF32);
    comm.all_gather(in.view(), out.view());
  }),
              kBytes);
  expect_sent(hosts.run([](Communicator& comm) {
    const std::vector<uint64_t> counts(8, kEach);
    const OwnedBuffer in = input(comm.rank(), 8 * kEach, DType::kF32, 1);
    const OwnedBuffer out = OwnedBuffer::host(8 * kEach, DType::kF32);
    comm.all_to_all(in.view(), counts, out.view(), counts);
  }),
              4 * kBytes);  // half of what each of the eight ranks sends
  expect_sent(hosts.run([](Communicator& comm) {
    const OwnedBuffer data = input(comm.rank(), kBytes / sizeof(float), DType::kF32, 1);
    comm.broadcast(data.view(), 5);
  }),
              kBytes);
}

TEST(HierBytes, AnExactSumCrossesAsOneArrayOfEachHost) {
  Hosts hosts("AAAABBBB");
  expect_sent(hosts.run([](Communicator& comm) {
    constexpr uint64_t kCount = kBytes / sizeof(float);
    ExactSum sum = comm.exact_sum(kCount, DType::kF32, 16);
    const auto first = static_cast<uint64_t>(comm.rank()) * 2;
    for (uint64_t shard = first; shard < first + 2; ++shard)
      sum.add(shard, input(static_cast<int>(shard), kCount, DType::kF32, 1).view());
    const OwnedBuffer out = OwnedBuffer::host(kCount, DType::kF32);
    comm.all_reduce(sum, out.view());
  }),
              2 * kBytes);
}

// Four rounds of one message each, instead of a message to each of the 15 other hosts.
TEST(HierMany, HostsAgreeByDigests) {
  Hosts hosts("ABCDEFGHIJKLMNOPP");
  hosts.run([](Communicator& comm) { comm.barrier(); });  // makes the connections
  const auto agreed = hosts.run([](Communicator& comm) { comm.barrier(); });
  EXPECT_EQ(agreed.messages, 16U * 4U);
  EXPECT_EQ(agreed.between, 16U * 4U * sizeof(HeaderDigest));
  const auto mismatch = hosts.run([](Communicator& comm) {
    std::vector<float> data(comm.rank() == 7 ? 5000 : 6000);
    try {
      comm.all_reduce(view_of(data));
      ADD_FAILURE() << "rank " << comm.rank() << " saw no mismatch";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 7: all_reduce sum f32[5000]"),
                std::string::npos)
          << error.what();
    }
  });
  EXPECT_EQ(mismatch.messages, 16U * (4U + 15U));
}

TEST(HierMany, OperationsGiveWhatAllRanksContributed) {
  Hosts hosts("ABCDEFGHIJKLMNOPPA");
  hosts.run([](Communicator& comm) {
    for (const uint64_t count : {1, 20'003})
      check_all_reduce(comm, DType::kF32, ReduceOp::kSum, count);
    check_reduce_scatter(comm, DType::kI32, ReduceOp::kAverage, 401);
    check_all_gather(comm, 100);
    check_all_to_all(comm, 100);
    check_broadcasts(comm);
    check_exact(comm, 2);
    std::vector<float> one = {1};
    for (int left = comm.size(); left > comm.rank(); --left) {
      one[0] = 1;
      comm.all_reduce(view_of(one), {.op = ReduceOp::kSum});
      EXPECT_EQ(one[0], static_cast<float>(left));
    }
    comm.join();
  });
}

TEST(HierBytes, FlatAlgorithmsSendMore) {
  Hosts hosts("AAAABBBB", "all_reduce=flat");
  const auto sent = hosts.run([](Communicator& comm) {
    const OwnedBuffer data = input(comm.rank(), kBytes / sizeof(float), DType::kF32, 1);
    comm.all_reduce(data.view());
  });
  EXPECT_GT(sent.between, 4 * kBytes);
}

// ---- decisions ----

TEST(HierConnections, AreOneForEachOtherHostAndNoneBeyondTheSmallestHost) {
  std::string hosts;
  for (int rank = 0; rank < 1024; ++rank) hosts.push_back(static_cast<char>(1 + rank / 9));
  const Topology large = topology_of(0, hosts);  // 113 hosts of 9 ranks, the last one of 7
  ASSERT_EQ(large.hosts.size(), 114U);
  std::vector<std::vector<int>> peers;
  for (int rank = 0; rank < 1024; ++rank) peers.push_back(cross_peers(large, rank));
  for (int rank = 0; rank < 1024; ++rank) {
    const auto& mine = peers[static_cast<size_t>(rank)];
    EXPECT_EQ(mine.size(), rank % 9 < 7 ? 113U : 0U) << rank;
    for (const int peer : mine) {
      const auto& theirs = peers[static_cast<size_t>(peer)];
      EXPECT_NE(peer / 9, rank / 9);
      EXPECT_EQ(std::count(theirs.begin(), theirs.end(), rank), 1) << rank << " and " << peer;
    }
  }
}

TEST(HierArrangement, MembersOfAHostAreSideBySideWhateverTheirRanks) {
  const Topology topology = topology_of(3, "ABABA");
  const std::vector<int> ranks = {0, 1, 2, 3, 4};
  const std::vector<int> active = {1, 2, 3, 4};
  const auto all = hier::arrange(topology, ranks, active, 3);
  EXPECT_EQ(all.hosts, (std::vector<std::vector<int>>{{2, 4}, {1, 3}}));
  EXPECT_EQ(all.host, 1U);
  EXPECT_EQ(all.position, 1U);
  EXPECT_EQ(all.rails, 2U);
}

TEST(HierBlocks, ArePackedOnlyIfTheirSegmentsAreApart) {
  const auto all = [](const std::string& hosts) {
    std::vector<int> ranks(hosts.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    return hier::arrange(topology_of(0, hosts), ranks, ranks, 0);
  };
  const std::vector<uint64_t> offsets = {0, 3, 3, 5, 9};
  EXPECT_TRUE(hier::Blocks(all("AABB"), offsets).are_contiguous());
  const hier::Blocks apart(all("ABBA"), offsets);
  EXPECT_FALSE(apart.are_contiguous());
  EXPECT_EQ(apart.count(0), 7U);
  EXPECT_EQ(apart.inner(0), (std::vector<uint64_t>{0, 3, 7}));
  std::vector<int32_t> array(9);
  std::iota(array.begin(), array.end(), 0);
  std::vector<int32_t> packed(9);
  apart.pack(view_of(array), view_of(packed));
  EXPECT_EQ(packed, (std::vector<int32_t>{0, 1, 2, 5, 6, 7, 8, 3, 4}));
  std::vector<int32_t> back(9);
  apart.unpack(view_of(packed), view_of(back));
  EXPECT_EQ(back, array);
}

}  // namespace
}  // namespace horon
