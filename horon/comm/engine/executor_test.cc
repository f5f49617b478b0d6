#include "horon/comm/engine/executor.h"

#include <gtest/gtest.h>

#include "horon/base/error.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/shared/local.h"
#include "tests/support/allocations.h"
#include "tests/support/run_ranks.h"

namespace horon {
namespace {

uint64_t allocations_of(Communicator& comm, const Request& request) {
  for (int i = 0; i < 3; ++i) comm.run(request);  // whatever grows once has grown
  const uint64_t before = testing_support::allocations();
  comm.run(request);
  return testing_support::allocations() - before;
}

// A rank that all-reduces small things often pays for each piece of memory: these are the header
// lists and the one agreement. A second agree() would be one more.
TEST(Executor, SmallOperationsTakeLittleMemory) {
  const auto world = make_local_world(1);
  std::vector<float> small(16, 1.0F);
  std::vector<float> large(1U << 20, 1.0F);
  EXPECT_LE(allocations_of(*world[0], Request::all_reduce(view_of(small))), 9U);
  EXPECT_LE(allocations_of(*world[0], Request::all_reduce(view_of(large))), 10U);
}

// A GPU that is made of host memory.
class ToyGpu final : public DeviceRuntime {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  int device_count() const override { return 1; }
  std::string describe() const override { return "toy"; }
  OwnedBuffer allocate(uint64_t count, DType dtype, int device) override {
    const OwnedBuffer host = OwnedBuffer::host(count, dtype);
    BufferView view = host.view();
    view.device = {DeviceKind::kCuda, device};
    return OwnedBuffer(view, std::make_shared<OwnedBuffer>(host));
  }
  OwnedBuffer allocate_pinned(uint64_t count, DType dtype) override {
    ++staged;
    return OwnedBuffer::host(count, dtype);
  }
  std::unique_ptr<Stream> make_stream(int device) override {
    return cpu_runtime()->make_stream(device);
  }
  int staged = 0;
};

constexpr Condition kToyCondition{"nobody has joined",
                                  [](const Situation& situation) { return situation.everybody; }};

// Around another channel, as NCCL's: all-reduces device memory itself, the rest is the inner one's.
class ToyChannel final : public Channel {
 public:
  explicit ToyChannel(std::unique_ptr<Channel> inner) : inner_(std::move(inner)) {}
  int index() const override { return inner_->index(); }
  int size() const override { return inner_->size(); }
  size_t inline_bytes() const override { return inner_->inline_bytes(); }
  void arrive(const Header& header, std::span<const std::byte> inline_data,
              Milliseconds timeout) override {
    inner_->arrive(header, inline_data, timeout);
  }
  std::span<const Header> headers() const override { return inner_->headers(); }
  const std::byte* inline_data(int member) const override { return inner_->inline_data(member); }
  uint64_t address_of(const BufferView& view) const override { return inner_->address_of(view); }
  void all_reduce(const Round& round, BufferView data, ReduceOp op) override {
    EXPECT_EQ(data.device.is_cpu(), round.algorithm != Algorithm::kNative);
    Round inner = round;
    if (!data.device.is_cpu()) inner.algorithm = Algorithm::kWindows;
    inner_->all_reduce(inner, data, op);
  }
  void reduce_scatter(const Round& round, BufferView in, BufferView out,
                      std::span<const uint64_t> offsets, ReduceOp op) override {
    inner_->reduce_scatter(round, in, out, offsets, op);
  }
  void all_gather(const Round& round, BufferView in, BufferView out,
                  std::span<const uint64_t> offsets) override {
    inner_->all_gather(round, in, out, offsets);
  }
  void broadcast(const Round& round, BufferView data, int root) override {
    inner_->broadcast(round, data, root);
  }
  void all_to_all(const Round& round, BufferView in, BufferView out,
                  const std::vector<std::vector<uint64_t>>& sends) override {
    inner_->all_to_all(round, in, out, sends);
  }
  void reduce_tree(const Round& round, const TreeCall& call) override {
    inner_->reduce_tree(round, call);
  }

 private:
  std::unique_ptr<Channel> inner_;
};

class ToyBackend final : public Backend {
 public:
  explicit ToyBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return "toy"; }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Channel> open_channel(std::span<const int> members, uint64_t id) override {
    return std::make_unique<ToyChannel>(inner_->open_channel(members, id));
  }
  OwnedBuffer allocate(uint64_t count, DType dtype) override {
    return inner_->allocate(count, dtype);
  }
  std::optional<Failure> failure() const override { return inner_->failure(); }
  void mark_dead(const Failure& failure) override { inner_->mark_dead(failure); }
  std::vector<AlgorithmRow> algorithms() const override {
    auto rows = inner_->algorithms();
    rows.push_back({.kind = OpKind::kAllReduce,
                    .algorithm = Algorithm::kNative,
                    .only = &kToyCondition,
                    .device = DeviceKind::kCuda});
    return rows;
  }

 private:
  std::unique_ptr<Backend> inner_;
};

struct ToyJob {
  explicit ToyJob(int size, const std::vector<std::string>& algorithm = {}) {
    const std::vector<std::string> hosts(static_cast<size_t>(size), "here");
    int rank = 0;
    for (auto& inner : shared::make_local_backends(size)) {
      gpus.push_back(std::make_shared<ToyGpu>());
      Communicator::Settings settings;
      settings.device = gpus.back();
      if (!algorithm.empty()) settings.algorithm = algorithm[static_cast<size_t>(rank)];
      ranks.push_back(std::make_unique<Communicator>(std::make_shared<ToyBackend>(std::move(inner)),
                                                     make_topology(rank++, hosts),
                                                     std::move(settings)));
    }
  }
  std::vector<std::shared_ptr<ToyGpu>> gpus;
  std::vector<std::unique_ptr<Communicator>> ranks;
};

OwnedBuffer filled(ToyGpu& gpu, uint64_t count, float value) {
  OwnedBuffer buffer = gpu.allocate(count, DType::kF32, 0);
  for (float& one : buffer.as<float>()) one = value;
  return buffer;
}

// Device memory goes by the rows that are for it, and through the host where there is none.
TEST(Executor, DeviceMemoryUsesDeviceRows) {
  const ToyJob job(2);
  testing_support::run_ranks(job.ranks, [&](Communicator& comm) {
    ToyGpu& gpu = *job.gpus[static_cast<size_t>(comm.rank())];
    const OwnedBuffer data = filled(gpu, 5000, 1.0F + static_cast<float>(comm.rank()));
    comm.all_reduce(data.view());
    ASSERT_NE(comm.chosen(), nullptr);
    EXPECT_EQ(comm.chosen()->algorithm, Algorithm::kNative);
    EXPECT_EQ(comm.chosen()->device, DeviceKind::kCuda);
    EXPECT_EQ(gpu.staged, 0);
    EXPECT_EQ(data.as<float>()[4999], 3.0F);
    comm.broadcast(data.view(), 1);
    EXPECT_EQ(comm.chosen()->device, DeviceKind::kCpu);
    EXPECT_GT(gpu.staged, 0);
    EXPECT_EQ(data.as<float>()[4999], 3.0F);
  });
}

// Headers are told before anybody knows that a rank has joined.
TEST(Executor, DeviceMemoryGoesThroughTheHostOnceARankHasJoined) {
  const ToyJob job(3);
  testing_support::run_ranks(job.ranks, [&](Communicator& comm) {
    ToyGpu& gpu = *job.gpus[static_cast<size_t>(comm.rank())];
    if (comm.rank() != 2) {
      const OwnedBuffer data = filled(gpu, 5000, 1.0F + static_cast<float>(comm.rank()));
      comm.all_reduce(data.view());
      ASSERT_NE(comm.chosen(), nullptr);
      EXPECT_EQ(comm.chosen()->device, DeviceKind::kCpu);
      EXPECT_EQ(gpu.staged, 1);
      EXPECT_EQ(data.as<float>()[4999], 3.0F);
    }
    comm.join();
  });
}

// What one rank would do otherwise is a mismatch, before anything moves.
TEST(Executor, DifferentTablesAreAMismatch) {
  const ToyJob job(2, {"all_reduce=windows", "all_reduce=in_place"});
  testing_support::run_ranks(job.ranks, [&](Communicator& comm) {
    std::vector<float> data(5000, 1.0F);
    try {
      comm.all_reduce(view_of(data));
      ADD_FAILURE() << "rank " << comm.rank();
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("different algorithms"), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(data[0], 1.0F);
  });
}

TEST(Executor, RefusesAnOverrideThatTheBackendDoesNotHave) {
  try {
    const ToyJob job(1, {"all_reduce=two_level"});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what())
                  .find("algorithm: backend toy has no all_reduce=two_level; "
                        "it has all_reduce=inline, all_reduce=in_place"),
              0U)
        << error.what();
  }
}

// A channel does what it published for the operation and nothing else.
TEST(Executor, ChannelsRefuseWhatTheyNeverPublished) {
  const auto backends = shared::make_local_backends(1);
  const std::vector<int> all = {0};
  const auto channel = backends[0]->open_channel(all, 7);
  channel->arrive({}, {}, Milliseconds(1000));
  std::vector<float> data(4);
  const Round round{channel->headers(), all, Milliseconds(1000), Algorithm::kTree};
  EXPECT_THROW(channel->all_reduce(round, view_of(data), ReduceOp::kSum), Error);
  EXPECT_THROW(channel->broadcast(round, view_of(data), 0), Error);
}

}  // namespace
}  // namespace horon
