// Beside LibTorch itself: our step against its own loop, published sizes of models, Gloo in one
// process with it.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "horon/base/error.h"
#include "horon/comm/bootstrap.h"
#include "horon/runtime/session.h"
#include "horon/train/bare_loop.h"
#include "horon/train/flaw.h"
#include "horon/train/gradient_sync.h"
#include "horon/train/optimizer.h"
#include "horon/train/replica.h"
#include "horon/train/step.h"

namespace horon::train {
namespace {

struct Batch {
  std::vector<float> pixels;
  std::vector<int64_t> labels;
  std::vector<uint64_t> numbers;
  Batch(size_t count, unsigned step) : pixels(count * 3072) {
    for (size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = std::sin(static_cast<float>(i % 977) * 0.37F + static_cast<float>(step));
    for (size_t i = 0; i < count; ++i) {
      labels.push_back(static_cast<int64_t>((i + step) % 10));
      numbers.push_back(i);
    }
  }
  Replica::Samples samples() const { return {pixels.data(), labels, numbers, 0}; }
};

float value_of(const NamedTensor& tensor, size_t i) {
  float value = 0;
  std::memcpy(&value, tensor.bytes.data() + 4 * i, 4);
  return value;
}

// A training pass of one replica by itself.
Score train(Replica& replica, const Replica::Samples& samples, double divisor,
            const std::function<void(size_t, const float*)>& ready) {
  replica.forward(samples);
  replica.backward(divisor, ready);
  return replica.score();
}

TEST(Parity, OptimizerStepsMatchLibTorch) {
  TrainConfig config;
  config.weight_decay = 0;  // LibTorch's applies to everything
  config.learning_rate = 0.05;
  Replica replica(config, {}, Replica::Options{});
  BareLoop bare(config, {});
  std::vector<std::vector<float>> gradients;
  std::vector<Slice> slices;
  for (const ModelArray& one : replica.parameters()) gradients.emplace_back(one.count);
  for (size_t i = 0; i < gradients.size(); ++i)
    slices.push_back({replica.parameters()[i].name, replica.parameters()[i].data,
                      gradients[i].data(), gradients[i].size(), false});
  const auto optimizer = make_optimizer(config, slices);
  for (unsigned step = 0; step < 20; ++step) {
    const Batch batch(32, step);
    size_t seen = 0;
    train(replica, batch.samples(), 32.0, [&](size_t i, const float* gradient) {
      std::copy_n(gradient, gradients[i].size(), gradients[i].data());
      ++seen;
    });
    EXPECT_EQ(seen, gradients.size());
    optimizer->step(slices, config.learning_rate);
    bare.step(batch.samples());
  }
  const TensorMap ours = replica.state();
  const TensorMap theirs = bare.state();
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : ours) {
    const std::string& other = theirs.at(name).bytes;
    ASSERT_EQ(tensor.bytes.size(), other.size()) << name;
    for (size_t i = 0; i < other.size() / 4; ++i) {
      const float b = value_of(theirs.at(name), i);
      ASSERT_NEAR(value_of(tensor, i), b, 2e-4 + 2e-3 * std::abs(b)) << name;
    }
  }
}

TEST(Models, HaveThePublishedNumbersOfParameters) {
  const auto count = [](const char* name, int classes, int size, int channels = 3) {
    TrainConfig config;
    config.model = name;
    return Replica(config, {classes, size, channels}, {}).parameter_count();
  };
  EXPECT_EQ(count("lenet", 10, 28, 1), 3'274'634U);
  EXPECT_EQ(count("workshop_cnn", 10, 32), 555'690U);
  EXPECT_EQ(count("resnet_v1_20", 10, 32), 272'474U);
  EXPECT_EQ(count("resnet_v1_56", 10, 32), 855'770U);
  EXPECT_EQ(count("resnet_v1_110", 10, 32), 1'730'714U);
  EXPECT_EQ(count("resnet_v1_18", 1000, 224), 11'689'512U);
  EXPECT_EQ(count("resnet_v1_50", 1000, 224), 25'557'032U);
  EXPECT_EQ(count("resnet_v1_50_slim", 1000, 224), 25'557'032U);
}

TEST(Replicas, StateComesBackToTheLastBit) {
  TrainConfig config;
  Replica one(config, {}, Replica::Options{});
  config.seed = 2;
  Replica two(config, {}, Replica::Options{});
  const TensorMap state = one.state();
  EXPECT_NE(two.state().at("fc.weight").bytes, state.at("fc.weight").bytes);
  two.load(state);
  EXPECT_EQ(two.state().at("layer2.0.conv1.weight").bytes, state.at("layer2.0.conv1.weight").bytes);
  const Batch batch(8, 3);
  EXPECT_EQ(one.evaluate(batch.samples()).loss, two.evaluate(batch.samples()).loss);
  TensorMap bad = state;
  bad.erase("fc.bias");
  EXPECT_THROW(two.load(bad), std::exception);
}

struct Gradients {
  std::vector<std::vector<float>> values;
  explicit Gradients(const Replica& replica) {
    for (const ModelArray& one : replica.parameters()) values.emplace_back(one.count);
  }
  void add(size_t i, const float* gradient) {
    for (size_t k = 0; k < values[i].size(); ++k) values[i][k] += gradient[k];
  }
};

void expect_near(std::span<const float> a, std::span<const float> b, double limit,
                 const std::string& name) {
  ASSERT_EQ(a.size(), b.size()) << name;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], limit) << name << " " << i;
}

Replica::Samples part_of(const Batch& batch, size_t first, size_t count) {
  return {batch.pixels.data() + first * 3072, std::span(batch.labels).subspan(first, count),
          std::span(batch.numbers).subspan(first, count), 0};
}

// Batch norm by shards: each starts from the step's statistics and normalises by its own samples;
// gradients are summed, statistics averaged by samples. The reference runs the shards one by one
// through replicas of their own.
TEST(ExactSync, IsTheSumOfItsShards) {
  const TrainConfig config;
  const std::vector<std::pair<size_t, size_t>> cuts = {{0, 6}, {6, 6}, {12, 5}, {17, 5}};
  const Batch batch(22, 1);
  Replica probe(config, {}, Replica::Options{});
  Gradients wanted(probe);
  std::vector<double> statistics(probe.read_statistics().size());
  double loss = 0;
  for (const auto& [first, count] : cuts) {
    Replica own(config, {}, Replica::Options{});
    loss += train(own, part_of(batch, first, count), 22.0, [&](size_t i, const float* g) {
              wanted.add(i, g);
            }).loss;
    const auto after = own.read_statistics();
    for (size_t i = 0; i < after.size(); ++i)
      statistics[i] += after[i] * static_cast<double>(count) / 22.0;
  }
  Replica replica(config, {}, Replica::Options{});
  Runtime runtime(std::move(make_local_world(1)[0]));
  const auto sync = make_exact_sync(runtime, replica, 4);
  std::vector<Shard> shards;
  for (size_t i = 0; i < cuts.size(); ++i)
    shards.push_back({i, part_of(batch, cuts[i].first, cuts[i].second)});
  const StepSums sums = compute_gradients(replica, *sync, {{{shards, 22}}});
  EXPECT_NEAR(sums.score.loss, loss, 1e-4);
  for (size_t i = 0; i < wanted.values.size(); ++i)
    expect_near({sync->slices()[i].gradient, sync->slices()[i].count}, wanted.values[i], 1e-5,
                sync->slices()[i].name);
  const auto got = replica.read_statistics();
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], statistics[i], 1e-5) << i;
}

// The first step is linear in the gradient. So what n ranks come to, batch norm's statistics
// included, is the average, by samples, of what LibTorch alone comes to with each rank's part.
TEST(FastSync, OneStepOfManyRanksIsTheAverageOfLibTorchsOwn) {
  TrainConfig config;
  config.weight_decay = 0;
  config.learning_rate = 0.05;
  const Batch batch(22, 3);
  const std::vector<std::vector<size_t>> parts = {{22}, {12, 10}, {10, 8, 4}};
  for (const auto& counts : parts) {
    std::map<std::string, std::vector<double>> wanted;
    size_t first = 0;
    for (const size_t count : counts) {
      BareLoop alone(config, {});
      alone.step(part_of(batch, first, count));
      first += count;
      for (const auto& [name, tensor] : alone.state()) {
        if (tensor.dtype != "F32") continue;
        auto& sum = wanted[name];
        sum.resize(tensor.bytes.size() / 4);
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += value_of(tensor, i) * static_cast<double>(count) / 22.0;
      }
    }
    auto world = make_local_world(static_cast<int>(counts.size()));
    std::vector<std::jthread> ranks;
    first = 0;
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      ranks.emplace_back([&, rank, first] {
        Replica replica(config, {}, Replica::Options{});
        Runtime runtime(std::move(world[rank]));
        const auto sync = make_fast_sync(runtime, replica);
        const auto optimizer = make_optimizer(config, sync->slices());
        compute_gradients(replica, *sync, {{{{{rank, part_of(batch, first, counts[rank])}}, 22}}});
        optimizer->step(sync->slices(), config.learning_rate);
        for (const auto& [name, tensor] : replica.state()) {
          if (tensor.dtype != "F32") continue;
          for (size_t i = 0; i < wanted.at(name).size(); ++i)
            ASSERT_NEAR(value_of(tensor, i), wanted.at(name)[i], 2e-5) << name << " " << i;
        }
      });
      first += counts[rank];
    }
  }
}

// Two ranks with parts of a batch, batch norm over both: gradients and statistics of the whole.
std::string weights_and_statistics(const Replica& replica) {
  std::string all;
  for (const auto& [name, tensor] : replica.state()) all += tensor.bytes;
  return all;
}

// Replica, optimizer and position are kept, session and sums made anew: three ranks, then (one is
// lost) two, have the bits of one that did all steps alone.
TEST(Renewal, RenewedSessionContinuesTrainingBitForBit) {
  TrainConfig config;
  config.reduction = Reduction::kExact;
  config.logical_shards = 6;
  constexpr int kSteps = 4;
  const auto train = [&](const Runtime& runtime, Replica& replica, GradientSync& sync,
                         Optimizer& optimizer, int step) {
    const Batch batch(24, step);
    std::vector<Shard> mine;
    const auto ranks = static_cast<uint64_t>(runtime.size());
    const uint64_t first = 6 * static_cast<uint64_t>(runtime.rank()) / ranks;
    for (uint64_t n = first; n < 6 * static_cast<uint64_t>(runtime.rank() + 1) / ranks; ++n)
      mine.push_back({n, part_of(batch, 4 * n, 4)});
    compute_gradients(replica, sync, {{{mine, 24}}});
    optimizer.step(sync.slices(), 0.05);
  };
  std::string alone;
  {
    Runtime runtime(std::move(make_local_world(1)[0]));
    Replica replica(config, {}, {});
    const auto sync = make_sync(config, runtime, replica);
    const auto optimizer = make_optimizer(config, sync->slices());
    for (int step = 0; step < 2 * kSteps; ++step) train(runtime, replica, *sync, *optimizer, step);
    alone = weights_and_statistics(replica);
  }
  const auto store = make_memory_store();
  std::vector<std::string> ends(3);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        Membership membership;
        membership.rank = rank;
        membership.size = 3;
        membership.store = store;
        auto session = std::make_unique<Session>(membership, 0, SessionOptions{});
        Replica replica(config, {}, {});
        auto sync = make_sync(config, session->runtime(), replica);
        const auto optimizer = make_optimizer(config, sync->slices());
        for (int step = 0; step < kSteps; ++step)
          train(session->runtime(), replica, *sync, *optimizer, step);
        session->barrier();
        if (rank == 1) return session.reset();  // is lost
        EXPECT_THROW(train(session->runtime(), replica, *sync, *optimizer, kSteps), PeerLostError);
        membership.rank = rank / 2;
        membership.size = 2;
        sync.reset();
        session->renew(membership, 1);
        sync = make_sync(config, session->runtime(), replica);
        for (int step = kSteps; step < 2 * kSteps; ++step)
          train(session->runtime(), replica, *sync, *optimizer, step);
        session->barrier();
        ends[rank] = weights_and_statistics(replica);
      });
    }
  }
  EXPECT_EQ(ends[0] == alone, true);
  EXPECT_EQ(ends[2] == alone, true);
}

TEST(SyncBatchNorm, TwoRanksMatchOneRankWithAllSamples) {
  TrainConfig config;
  const Batch batch(20, 2);
  Replica whole(config, {}, Replica::Options{});
  Gradients wanted(whole);
  const Score score =
      train(whole, batch.samples(), 20.0, [&](size_t i, const float* g) { wanted.add(i, g); });
  Gradients sum(whole);
  std::mutex mutex;
  double loss = 0;
  auto world = make_local_world(2);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Replica replica(config, {}, {});
      replica.norm_over(world[static_cast<size_t>(rank)].get());
      Gradients mine(replica);
      const Score part = train(replica, part_of(batch, rank == 0 ? 0 : 12, rank == 0 ? 12 : 8),
                               20.0, [&](size_t i, const float* g) { mine.add(i, g); });
      const std::lock_guard lock(mutex);
      loss += part.loss;
      for (size_t i = 0; i < mine.values.size(); ++i) sum.add(i, mine.values[i].data());
      expect_near(replica.read_statistics(), whole.read_statistics(), 1e-5, "statistics");
    });
  }
  ranks.clear();
  EXPECT_NEAR(loss, score.loss, 1e-3);
  for (size_t i = 0; i < sum.values.size(); ++i)
    expect_near(sum.values[i], wanted.values[i], 2e-5, whole.parameters()[i].name);
}

TEST(Flaws, AreFoundWhileGradientsAreTaken) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t at : {size_t{0}, size_t{500}, size_t{1000}}) {
      std::vector<float> from(1001, std::numeric_limits<float>::max());
      std::vector<float> to(1001, -1.0F);
      EXPECT_TRUE(take_checked(to.data(), from.data(), from.size(), false));
      from[at] = bad;
      EXPECT_FALSE(take_checked(to.data(), from.data(), from.size(), false));
      EXPECT_FALSE(take_checked(to.data(), from.data(), from.size(), true));
      EXPECT_EQ(count_flaws(from.data(), from.size()), 1U);
    }
  }
  std::vector<float> from = {1, -0.0F, 2};
  std::vector<float> to = {1, 1, 1};
  EXPECT_TRUE(take_checked(to.data(), from.data(), 3, true));
  EXPECT_EQ(to, (std::vector<float>{2, 1, 3}));
}

// LibTorch has a Gloo of its own; two in one process would call each other's functions.
TEST(Gloo, IsRefusedBesideTheOneOfLibTorch) {
  TrainConfig config;
  Replica replica(config, {}, Replica::Options{});  // LibTorch is at work
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      BootstrapInfo info;
      info.job_settings = JobSettings::resolve({{"backend", "gloo"}}, process_env, "");
      info.rank = rank;
      info.size = 2;
      info.store = store;
      try {
        make_communicator(info);
        ADD_FAILURE() << "it was opened";
      } catch (const UsageError& error) {
        EXPECT_NE(std::string(error.what()).find("use tcp"), std::string::npos) << error.what();
      }
    });
  }
}

}  // namespace
}  // namespace horon::train
