#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "horon/base/error.h"
#include "horon/base/setting.h"
#include "horon/base/text.h"
#include "horon/optim/optimizer.h"
#include "horon/optim/optimizer_table.h"
#include "horon/optim/schedule.h"

namespace horon::optim {
namespace {

ScheduleOptions with(const std::string& strategy) {
  ScheduleOptions options;
  options.learning_rate = 0.1;
  options.learning_rate_strategy = strategy;
  return options;
}

TEST(Schedules, StagesInterpolateBetweenEpochs) {
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
TEST(Schedules, AnExponentialWarmUpChangesTheFirstStageToAConstantFactor) {
  ScheduleOptions options = with("5:0.001->0.4,10:0.4->0.2");
  options.lr_warmup_strategy = WarmUp::kExponential;
  const Schedule bent(options, 10, 128);
  EXPECT_NEAR(bent.at(2), 0.001 * std::pow(400.0, 0.4), 1e-12);  // 0.011
  EXPECT_DOUBLE_EQ(bent.at(7.5), 0.3);                           // the second stays as it is
  for (const char* bad : {"5:0->0.4", "5:0.1,10:0.01"}) {
    options.learning_rate_strategy = bad;
    EXPECT_THROW(Schedule(options, 10, 128), UsageError) << bad;
  }
}

TEST(Schedules, AWarmUpStartsAtItsSetting) {
  ScheduleOptions options = with("");
  options.lr_warmup_epochs = 4;
  options.lr_warmup_start = 0.02;
  EXPECT_DOUBLE_EQ(Schedule(options, 10, 128).at(0), 0.02);
  EXPECT_DOUBLE_EQ(Schedule(options, 10, 128).at(2), 0.06);
  options.lr_warmup_strategy = WarmUp::kExponential;
  EXPECT_NEAR(Schedule(options, 10, 128).at(2), std::sqrt(0.02 * 0.1), 1e-12);
  options.lr_warmup_start = 0;
  EXPECT_NEAR(Schedule(options, 10, 128).at(0), 0.001, 1e-12);
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
  ScheduleOptions options = with("polynomial");
  options.lr_power = 2;
  options.lr_warmup_epochs = 2;
  options.lr_end = 0.01;
  const Schedule polynomial(options, 12, 128);
  EXPECT_DOUBLE_EQ(polynomial.at(1), 0.05);
  EXPECT_DOUBLE_EQ(polynomial.at(2), 0.1);  // no jump
  EXPECT_DOUBLE_EQ(polynomial.at(7), 0.01 + 0.09 * 0.25);
  EXPECT_DOUBLE_EQ(polynomial.at(12), 0.01);
  options.learning_rate_strategy = "cosine";
  EXPECT_NEAR(Schedule(options, 12, 128).at(7), 0.055, 1e-12);
  options.learning_rate_strategy = "";
  options.scale_lr = RateScale::kLinear;
  EXPECT_DOUBLE_EQ(Schedule(options, 12, 512).at(5), 0.2);
}

// The table of settings stands below this folder, so it has the words of its own: they are those of
// the rows, and the help of a setting that only some of them read names just these.
TEST(OptimizerTable, IsWhatTheSettingsSay) {
  std::vector<std::string> words;
  std::map<std::string, std::set<std::string>> readers;
  for_each_optimizer([&](const auto& row, OptimizerKind) {
    words.emplace_back(row.word);
    for (const std::string& name : split(row.reads, ' ')) readers[name].emplace(row.word);
  });
  EXPECT_EQ(split(look_up_setting("optimizer")->words, ' '), words)
      << "the setting 'optimizer' in base/setting_table.cc";
  for (const auto& [name, by] : readers) {
    const Setting* setting = look_up_setting(name);
    ASSERT_NE(setting, nullptr) << name;
    if (by.size() == words.size()) continue;
    for (const std::string& word : words)
      EXPECT_EQ(setting->help.find(word) != std::string_view::npos, by.contains(word))
          << "the help of '" << name << "' and " << word;
  }
}

// Checkpoints are read by these names.
TEST(OptimizerTable, StateNamesAreThoseInCheckpoints) {
  std::vector<float> weights(3);
  const std::vector<Slice> slices = {{"a", weights.data(), weights.data(), 3, true}};
  const std::map<OptimizerKind, std::set<std::string>> wanted = {
      {OptimizerKind::kSgd, {}},
      {OptimizerKind::kMomentum, {"velocity"}},
      {OptimizerKind::kAdam, {"first", "second"}},
      {OptimizerKind::kLars, {"velocity"}}};
  for (const auto& [kind, names] : wanted) {
    const auto optimizer = make_optimizer({.optimizer = kind}, slices);
    std::set<std::string> found;
    for (const auto& [name, view] : optimizer->state()) {
      found.insert(name);
      EXPECT_EQ(view.count, 3U);
    }
    EXPECT_EQ(found, names);
  }
  EXPECT_THROW(make_optimizer({.optimizer = static_cast<OptimizerKind>(99)}, slices), UsageError);
}

// Each optimizer against its formula in long double, over 100 steps.
TEST(Optimizers, FollowTheirFormulas) {
  for (const char* name : {"sgd", "momentum", "nesterov", "adam", "lars"}) {
    OptimizerOptions options{.momentum = 0.9, .weight_decay = 0.01};
    options.nesterov = std::string(name) == "nesterov";
    for_each_optimizer([&](const auto& row, OptimizerKind kind) {
      if (row.word == (options.nesterov ? "momentum" : name)) options.optimizer = kind;
    });
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
    const auto optimizer = make_optimizer(options, slices);
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
          if (options.optimizer == OptimizerKind::kSgd) w[i] -= rate * g;
          if (options.optimizer == OptimizerKind::kMomentum) {
            m[i] = 0.9L * m[i] + g;
            w[i] -= rate * (options.nesterov ? g + 0.9L * m[i] : m[i]);
          }
          if (options.optimizer == OptimizerKind::kAdam) {
            m[i] = 0.9L * m[i] + 0.1L * g;
            v[i] = 0.999L * v[i] + 0.001L * g * g;
            w[i] -= rate * (m[i] / (1 - std::pow(0.9L, step))) /
                    (std::sqrt(v[i] / (1 - std::pow(0.999L, step))) + 1e-8L);
          }
          if (options.optimizer == OptimizerKind::kLars) {
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
  const OptimizerOptions options{
      .optimizer = OptimizerKind::kMomentum, .momentum = 0.9, .nesterov = true};
  std::vector<float> weights = {1, 2, 3};
  std::vector<float> gradients(3);
  std::vector<float> plain_weights = weights;
  std::vector<float> mean(3);
  const std::vector<Slice> slices = {{"a", weights.data(), gradients.data(), 3, true}};
  const std::vector<Slice> plain_slices = {{"a", plain_weights.data(), mean.data(), 3, true}};
  const auto wrapped = make_batch_gradients(make_optimizer(options, slices), 4, slices);
  const auto plain = make_optimizer(options, plain_slices);
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

}  // namespace
}  // namespace horon::optim
