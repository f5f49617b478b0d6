#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/file/file.h"
#include "horon/train/checkpoint.h"
#include "horon/train/length.h"
#include "horon/train/optimizer.h"
#include "horon/train/safetensors.h"
#include "horon/train/schedule.h"

namespace horon::train {
namespace {

TrainConfig with(const std::string& strategy) {
  TrainConfig config;
  config.learning_rate = 0.1;
  config.learning_rate_strategy = strategy;
  return config;
}

TEST(Schedules, Stages) {
  const Schedule stages(with("5:0.001->0.4,10:0.4=>0.8,30:0.4,60:0.04"), 60, 128);
  EXPECT_DOUBLE_EQ(stages.at(0), 0.001);
  EXPECT_DOUBLE_EQ(stages.at(2.5), 0.001 + 0.399 / 2);
  EXPECT_NEAR(stages.at(7.5), 0.4 * std::sqrt(2.0), 1e-12);
  EXPECT_DOUBLE_EQ(stages.at(10), 0.4);
  EXPECT_DOUBLE_EQ(stages.at(30), 0.04);
  EXPECT_DOUBLE_EQ(stages.at(99), 0.04);
  for (const char* bad :
       {"5", "5:x", "5:nan", "5:-1", "5:0.1,5:0.2", "5:0.1,3:0.2", "5:0=>1", "nonsense", "5:0.1->"})
    EXPECT_THROW(Schedule(with(bad), 10, 128), UsageError) << bad;
  EXPECT_DOUBLE_EQ(Schedule(with("5:0->0.4"), 5, 128).at(5), 0.4);  // one stage is enough
}

// The first straight line becomes a constant factor.
TEST(Schedules, AnExponentialWarmUpBendsTheFirstStage) {
  TrainConfig config = with("5:0.001->0.4,10:0.4->0.2");
  config.lr_warmup_strategy = WarmUp::kExponential;
  const Schedule bent(config, 10, 128);
  EXPECT_NEAR(bent.at(2), 0.001 * std::pow(400.0, 0.4), 1e-12);  // 0.011
  EXPECT_DOUBLE_EQ(bent.at(7.5), 0.3);                           // the second stays as it is
  for (const char* bad : {"5:0->0.4", "5:0.1,10:0.01"}) {
    config.learning_rate_strategy = bad;
    EXPECT_THROW(Schedule(config, 10, 128), UsageError) << bad;
  }
}

TEST(Schedules, AWarmUpBeginsWhereItIsTold) {
  TrainConfig config = with("");
  config.lr_warmup_epochs = 4;
  config.lr_warmup_start = 0.02;
  EXPECT_DOUBLE_EQ(Schedule(config, 10, 128).at(0), 0.02);
  EXPECT_DOUBLE_EQ(Schedule(config, 10, 128).at(2), 0.06);
  config.lr_warmup_strategy = WarmUp::kExponential;
  EXPECT_NEAR(Schedule(config, 10, 128).at(2), std::sqrt(0.02 * 0.1), 1e-12);
  config.lr_warmup_start = 0;
  EXPECT_NEAR(Schedule(config, 10, 128).at(0), 0.001, 1e-12);
}

TEST(Schedules, SayWhereNothingIsLearnedAndWhetherThePastIsTheSame) {
  EXPECT_EQ(Schedule(with("5:0.1,10:0.1->0"), 20, 128).idle_from(), 10.0);
  EXPECT_FALSE(Schedule(with("5:0.1,10:0.1->0"), 10.4, 128).idle_from());
  EXPECT_FALSE(Schedule(with("5:0.1,10:0.1->0.01"), 20, 128).idle_from());
  EXPECT_FALSE(Schedule(with("cosine"), 20, 128).idle_from());
  const Schedule old(with("5:0.1,10:0.1->0"), 10, 128);
  EXPECT_TRUE(old.is_same_until(10, Schedule(with("5:0.1,10:0.1->0,20:0.01"), 20, 128)));
  EXPECT_FALSE(old.is_same_until(10, Schedule(with("5:0.2,10:0.1->0,20:0.01"), 20, 128)));
}

TEST(Schedules, ShapesStartAfterTheWarmUp) {
  TrainConfig config = with("polynomial");
  config.lr_power = 2;
  config.lr_warmup_epochs = 2;
  config.lr_end = 0.01;
  const Schedule polynomial(config, 12, 128);
  EXPECT_DOUBLE_EQ(polynomial.at(1), 0.05);
  EXPECT_DOUBLE_EQ(polynomial.at(2), 0.1);  // no jump
  EXPECT_DOUBLE_EQ(polynomial.at(7), 0.01 + 0.09 * 0.25);
  EXPECT_DOUBLE_EQ(polynomial.at(12), 0.01);
  config.learning_rate_strategy = "cosine";
  EXPECT_NEAR(Schedule(config, 12, 128).at(7), 0.055, 1e-12);
  config.learning_rate_strategy = "";
  config.scale_lr = RateScale::kLinear;
  EXPECT_DOUBLE_EQ(Schedule(config, 12, 512).at(5), 0.2);
}

TEST(Lengths, AreWholeEpochsHoweverManyBatchesAStepTakes) {
  const RunLength run{.epochs = 10, .passes = 4, .batches = 7, .batch = 10};
  EXPECT_EQ(run.total(0, {}), 18U);  // 70 batches
  EXPECT_EQ(run.total(1, {0, 40}), 18U);
  EXPECT_FALSE(run.is_over(17, {9, 50}));
  EXPECT_TRUE(run.is_over(18, {10, 0}));
  const RunLength longer{.epochs = 20, .passes = 4, .batches = 7, .batch = 10};
  EXPECT_EQ(longer.total(18, {10, 0}), 36U);  // 70 more
  const RunLength by_steps{.steps = 5, .passes = 4, .batches = 8, .batch = 10};
  EXPECT_DOUBLE_EQ(by_steps.in_epochs(), 2.5);
  EXPECT_TRUE(by_steps.is_over(5, {2, 40}));
}

// Each optimizer against its formula in long double, over 100 steps.
TEST(Optimizers, FollowTheirFormulas) {
  for (const char* name : {"sgd", "momentum", "nesterov", "adam", "lars"}) {
    TrainConfig config;
    set_field(config, "optimizer", std::string(name) == "nesterov" ? "momentum" : name);
    config.nesterov = std::string(name) == "nesterov";
    config.weight_decay = 0.01;
    constexpr size_t kCount = 37;
    std::vector<float> weights(2 * kCount);
    std::vector<float> gradients(2 * kCount);
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    for (float& w : weights) w = normal(random);
    std::vector<long double> w(weights.begin(), weights.end());
    std::vector<long double> m(2 * kCount);
    std::vector<long double> v(2 * kCount);
    const std::vector<Slice> slices = {
        {"a", weights.data(), gradients.data(), kCount, true},
        {"b", weights.data() + kCount, gradients.data() + kCount, kCount, false}};
    const auto optimizer = make_optimizer(config, slices);
    for (int step = 1; step <= 100; ++step) {
      for (float& g : gradients) g = normal(random);
      const double rate = 0.05 / step;
      for (size_t part = 0; part < 2; ++part) {
        const long double decay = part == 0 ? 0.01L : 0.0L;
        long double ww = 0;
        long double gg = 0;
        for (size_t i = part * kCount; i < (part + 1) * kCount; ++i) {
          ww += w[i] * w[i];
          gg += static_cast<long double>(gradients[i]) * gradients[i];
        }
        const long double trust =
            part == 0 ? 0.001L * std::sqrt(ww) / (std::sqrt(gg) + 0.01L * std::sqrt(ww)) : 1.0L;
        for (size_t i = part * kCount; i < (part + 1) * kCount; ++i) {
          const long double g = gradients[i] + decay * w[i];
          if (config.optimizer == OptimizerKind::kSgd) w[i] -= rate * g;
          if (config.optimizer == OptimizerKind::kMomentum) {
            m[i] = 0.9L * m[i] + g;
            w[i] -= rate * (config.nesterov ? g + 0.9L * m[i] : m[i]);
          }
          if (config.optimizer == OptimizerKind::kAdam) {
            m[i] = 0.9L * m[i] + 0.1L * g;
            v[i] = 0.999L * v[i] + 0.001L * g * g;
            w[i] -= rate * (m[i] / (1 - std::pow(0.9L, step))) /
                    (std::sqrt(v[i] / (1 - std::pow(0.999L, step))) + 1e-8L);
          }
          if (config.optimizer == OptimizerKind::kLars) {
            m[i] = 0.9L * m[i] + rate * trust * g;
            w[i] -= m[i];
          }
        }
      }
      optimizer->step(slices, rate);
    }
    for (size_t i = 0; i < weights.size(); ++i)
      ASSERT_NEAR(weights[i], static_cast<double>(w[i]), 2e-5) << name << " " << i;
    EXPECT_EQ(optimizer->steps, 100U);
  }
}

TEST(Optimizers, BatchGradientsAveragesBeforeItsStep) {
  TrainConfig config;
  std::vector<float> weights = {1, 2, 3};
  std::vector<float> gradients(3);
  std::vector<float> plain_weights = weights;
  std::vector<float> mean(3);
  const std::vector<Slice> slices = {{"a", weights.data(), gradients.data(), 3, true}};
  const std::vector<Slice> plain_slices = {{"a", plain_weights.data(), mean.data(), 3, true}};
  const auto wrapped = make_batch_gradients(make_optimizer(config, slices), 4, slices);
  const auto plain = make_optimizer(config, plain_slices);
  for (int step = 0; step < 40; ++step) {
    const std::vector<float> before = weights;
    for (size_t i = 0; i < 3; ++i) {
      gradients[i] = std::sin(static_cast<float>(step + 1) * static_cast<float>(i + 1));
      mean[i] = (step % 4 == 0 ? 0.0F : mean[i]) + gradients[i];
    }
    wrapped->step(slices, 0.1);
    if (step % 4 != 3) {
      EXPECT_EQ(weights, before);
      continue;
    }
    for (float& value : mean) value /= 4;
    plain->step(plain_slices, 0.1);
    EXPECT_EQ(weights, plain_weights) << step;
  }
  EXPECT_EQ(wrapped->steps, 10U);
  EXPECT_TRUE(wrapped->state().contains("velocity"));  // nothing is lost in a checkpoint
  EXPECT_TRUE(wrapped->state().contains("batch_gradients.sum"));
}

TensorMap some_tensors(unsigned seed) {
  std::mt19937 random(seed);
  TensorMap map;
  for (const char* name : {"b", "a", "layer.weight"}) {
    NamedTensor& one = map[name];
    one.shape = {3, 5};
    for (int i = 0; i < 60; ++i) one.bytes += static_cast<char>(random());
  }
  return map;
}

TEST(Safetensors, ThereAndBackAndEqualFiles) {
  const std::string file = pack_safetensors(some_tensors(1));
  EXPECT_EQ(file, pack_safetensors(some_tensors(1)));
  const TensorMap back = unpack_safetensors(file, "x");
  EXPECT_EQ(back.at("layer.weight").bytes, some_tensors(1).at("layer.weight").bytes);
  EXPECT_EQ(back.at("a").shape, (std::vector<uint64_t>{3, 5}));
  for (size_t cut = 0; cut < file.size(); cut += 7)
    EXPECT_THROW(unpack_safetensors(file.substr(0, cut), "x"), Error) << cut;
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    std::string bad = file;
    bad[random() % 200] = static_cast<char>(random());
    try {
      unpack_safetensors(bad, "x");
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kCheckpoint);
    }
  }
}

Snapshot snapshot_at(uint64_t step) {
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.position = {1, step};
  snapshot.model = some_tensors(static_cast<unsigned>(step));
  snapshot.optimizer = some_tensors(99);
  return snapshot;
}

TEST(Checkpoints, AreKeptAndFound) {
  const TempFolder folder;
  CheckpointStore store(folder.path() + "/run", 3);
  EXPECT_FALSE(store.load_newest([](const std::string&) {}));
  for (uint64_t step = 10; step <= 60; step += 10) store.save_later(snapshot_at(step));
  store.finish();
  EXPECT_EQ(store.steps(), (std::vector<uint64_t>{40, 50, 60}));
  const auto newest = store.load_newest([](const std::string& line) { FAIL() << line; });
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->step, 60U);
  EXPECT_EQ(newest->position, (Position{1, 60}));
  EXPECT_EQ(newest->model.at("a").bytes, some_tensors(60).at("a").bytes);
  store.save(snapshot_at(60));  // once more: replaced
  EXPECT_EQ(store.steps().size(), 3U);
}

TEST(Checkpoints, KeepWhatCodecsKeepOfEveryRank) {
  const TempFolder folder;
  CheckpointStore store(folder.path(), 5);
  store.save(snapshot_at(1));  // as checkpoints were before
  EXPECT_FALSE(file::exists(file::join(store.path_of(1), "codec.safetensors")));
  EXPECT_TRUE(CheckpointStore::load(store.path_of(1)).codec_states.empty());

  Snapshot snapshot = snapshot_at(2);
  snapshot.ranks = 3;
  snapshot.codec_states = {{{"fc/weight", std::string("\0bytes", 6)}, {"", "x"}}, {}, {{"b", ""}}};
  store.save(snapshot);
  EXPECT_EQ(CheckpointStore::load(store.path_of(2)).codec_states, snapshot.codec_states);
  const std::string path = file::join(store.path_of(2), "codec.safetensors");
  file::write(path, file::read(path) + "more");
  EXPECT_THROW(CheckpointStore::load(store.path_of(2)), Error);
  file::remove(path);
  EXPECT_THROW(CheckpointStore::load(store.path_of(2)), Error);
}

// Two hundred kinds of damage: each is found out, and the one before is taken.
TEST(Checkpoints, DamagedOnesArePassedOver) {
  const TempFolder folder;
  CheckpointStore store(folder.path(), 5);
  store.save(snapshot_at(1));
  std::mt19937 random(8);
  const char* wanted = std::getenv("HORON_TEST_DAMAGE");
  const int count = wanted == nullptr ? 200 : std::atoi(wanted);
  for (int i = 0; i < count; ++i) {
    store.save(snapshot_at(2));
    const char* names[] = {"model.safetensors", "optimizer.safetensors", "manifest.json"};
    const std::string path = file::join(store.path_of(2), names[i % 3]);
    std::string bytes = file::read(path);
    const int kind = i / 3 % 4;
    if (kind == 0) bytes[random() % bytes.size()] ^= static_cast<char>(1U << (random() % 8));
    if (kind == 1) bytes.resize(random() % bytes.size());
    if (kind == 2) bytes += "more";
    if (kind == 3) {
      file::remove(path);
    } else {
      file::write(path, bytes);
    }
    int warnings = 0;
    const auto newest = store.load_newest([&](const std::string&) { ++warnings; });
    ASSERT_TRUE(newest);
    // Only blanks of a manifest may change, and a letter that JSON may write in two ways.
    if (newest->step == 2) {
      EXPECT_EQ(i % 3, 2) << i;
      EXPECT_EQ(newest->model.at("a").bytes, some_tensors(2).at("a").bytes);
      EXPECT_EQ(to_json(newest->config), to_json(snapshot_at(2).config));
      EXPECT_EQ(newest->position.next, snapshot_at(2).position.next);
    } else {
      EXPECT_EQ(warnings, 1) << i;
    }
  }
}

}  // namespace
}  // namespace horon::train
