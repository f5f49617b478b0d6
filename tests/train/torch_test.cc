// Beside LibTorch itself: our step against its own loop, published sizes of models, Gloo in one
// process with it.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <thread>

#include "horon/comm/bootstrap.h"
#include "horon/train/optimizer.h"
#include "horon/train/replica.h"

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

TEST(Parity, OurStepsAreLibTorchsOwn) {
  TrainConfig config;
  config.weight_decay = 0;  // LibTorch's applies to everything
  config.learning_rate = 0.05;
  Replica replica(config, {}, 1);
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
    replica.train(batch.samples(), 32.0, [&](size_t i, const float* gradient) {
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
    for (size_t i = 0; i < other.size(); i += 4) {
      float a = 0;
      float b = 0;
      std::memcpy(&a, tensor.bytes.data() + i, 4);
      std::memcpy(&b, other.data() + i, 4);
      ASSERT_NEAR(a, b, 2e-4 + 2e-3 * std::abs(b)) << name;
    }
  }
}

TEST(Models, HaveThePublishedNumbersOfParameters) {
  const auto count = [](const char* name, int classes, int size) {
    TrainConfig config;
    config.model = name;
    return Replica(config, {classes, size, 3}, 1).parameter_count();
  };
  EXPECT_EQ(count("resnet_v1_20", 10, 32), 272'474U);
  EXPECT_EQ(count("resnet_v1_56", 10, 32), 855'770U);
  EXPECT_EQ(count("resnet_v1_110", 10, 32), 1'730'714U);
  EXPECT_EQ(count("resnet_v1_18", 1000, 224), 11'689'512U);
  EXPECT_EQ(count("resnet_v1_50", 1000, 224), 25'557'032U);
  EXPECT_EQ(count("resnet_v1_50_slim", 1000, 224), 25'557'032U);
}

TEST(Replicas, StateComesBackToTheLastBit) {
  TrainConfig config;
  Replica one(config, {}, 1);
  config.seed = 2;
  Replica two(config, {}, 1);
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

// The program links Gloo before LibTorch; the other way round it would not get this far.
TEST(Gloo, WorksInOneProcessWithLibTorch) {
  TrainConfig config;
  Replica replica(config, {}, 1);  // LibTorch is at work
  const std::shared_ptr<Store> store = make_memory_store();
  std::vector<std::jthread> ranks;
  std::array<float, 2> results = {};
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      BootstrapInfo info;
      info.knobs = Knobs::resolve({{"backend", "gloo"}}, process_env, "");
      info.rank = rank;
      info.size = 2;
      info.store = store;
      const auto comm = make_communicator(info);
      std::array<float, 1> value = {static_cast<float>(rank + 1)};
      comm->all_reduce(view_of(value));
      results[static_cast<size_t>(rank)] = value[0];
      comm->barrier();
    });
  }
  ranks.clear();
  EXPECT_EQ(results[0], 3.0F);
  EXPECT_EQ(results[1], 3.0F);
}

}  // namespace
}  // namespace horon::train
