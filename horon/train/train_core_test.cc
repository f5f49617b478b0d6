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

// What a run's settings say reaches horon/optim, each by its name.
TEST(Settings, ReachTheSchedule) {
  TrainConfig config;
  config.learning_rate = 0.1;
  config.learning_rate_strategy = "polynomial";
  config.lr_power = 2;
  config.lr_end = 0.01;
  config.lr_warmup_epochs = 2;
  config.lr_warmup_start = 0.02;
  const Schedule schedule(config, 12, 128);
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.02);
  EXPECT_DOUBLE_EQ(schedule.at(7), 0.01 + 0.09 * 0.25);
  config.scale_lr = RateScale::kLinear;
  config.lr_base_batch = 64;
  EXPECT_DOUBLE_EQ(Schedule(config, 12, 128).at(2), 0.2);
  config.lr_warmup_strategy = WarmUp::kExponential;
  config.scale_lr = RateScale::kNone;
  EXPECT_NEAR(Schedule(config, 12, 128).at(1), std::sqrt(0.02 * 0.1), 1e-12);
  EXPECT_EQ(describe_rate(config), "learning rate 0.1, polynomial after a warm-up of 2 epoch(s)");
}

TEST(Settings, ReachTheOptimizer) {
  const std::vector<float> gradients = {1};
  const auto after_two = [&](const TrainConfig& config) {
    std::vector<float> weights = {2};
    const std::vector<Slice> slices = {{"a", weights.data(), gradients.data(), 1, true}};
    const auto optimizer = make_optimizer(config, slices);
    for (int i = 0; i < 2; ++i) optimizer->step(slices, 0.1);
    return weights[0];
  };
  TrainConfig config;
  config.optimizer = OptimizerKind::kSgd;
  config.weight_decay = 0.5;
  EXPECT_NEAR(after_two(config), 1.61, 1e-6);  // 2 - 0.1 * 2 = 1.8; 1.8 - 0.1 * 1.9
  config.optimizer = OptimizerKind::kMomentum;
  config.weight_decay = 0;
  config.momentum = 0.5;
  config.nesterov = false;
  EXPECT_NEAR(after_two(config), 1.75, 1e-6);
  config.nesterov = true;
  EXPECT_NEAR(after_two(config), 1.675, 1e-6);
}

TEST(RunLengths, AccumulatedBatchesMakeWholeEpochs) {
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

TEST(Safetensors, WrittenTensorsReadBackAndFilesAreReproducible) {
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

TEST(Checkpoints, ContainTheCodecStateOfEveryRank) {
  const TempFolder folder;
  CheckpointStore store(folder.path(), 5);
  store.save(snapshot_at(1));  // as checkpoints were before
  EXPECT_FALSE(file::exists(file::join_path(store.path_of(1), "codec.safetensors")));
  EXPECT_TRUE(CheckpointStore::load(store.path_of(1)).codec_states.empty());

  Snapshot snapshot = snapshot_at(2);
  snapshot.ranks = 3;
  snapshot.codec_states = {{{"fc/weight", std::string("\0bytes", 6)}, {"", "x"}}, {}, {{"b", ""}}};
  store.save(snapshot);
  EXPECT_EQ(CheckpointStore::load(store.path_of(2)).codec_states, snapshot.codec_states);
  const std::string path = file::join_path(store.path_of(2), "codec.safetensors");
  file::write(path, file::read(path) + "more");
  EXPECT_THROW(CheckpointStore::load(store.path_of(2)), Error);
  file::remove(path);
  EXPECT_THROW(CheckpointStore::load(store.path_of(2)), Error);
}

// Two hundred kinds of damage: each is found out, and the one before is taken.
TEST(Checkpoints, DamagedOnesAreSkipped) {
  const TempFolder folder;
  CheckpointStore store(folder.path(), 5);
  store.save(snapshot_at(1));
  std::mt19937 random(8);
  const char* wanted = std::getenv("HORON_TEST_DAMAGE");
  const int count = wanted == nullptr ? 200 : std::atoi(wanted);
  for (int i = 0; i < count; ++i) {
    store.save(snapshot_at(2));
    const char* names[] = {"model.safetensors", "optimizer.safetensors", "manifest.json"};
    const std::string path = file::join_path(store.path_of(2), names[i % 3]);
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
