#include "horon/runtime/autotune.h"

#include <gtest/gtest.h>

namespace horon {
namespace {

constexpr PlanLimits kLimits{1, 800};

Clock::time_point at(int64_t milliseconds) {
  return Clock::time_point() + std::chrono::hours(1) + Milliseconds(milliseconds);
}

std::vector<TensorSpec> tensors(const std::string& names, const std::string& codec = "") {
  std::vector<TensorSpec> specs;
  for (const char name : names) {
    specs.emplace_back();
    specs.back().name = std::string(1, name);
    specs.back().count = 100;
    specs.back().codec = codec;
  }
  return specs;
}

Plan planned(const std::string& names, const std::string& codec = "") {
  Plan plan(kLimits);
  plan.declare(tensors(names, codec));
  return plan;
}

TEST(LaneTuning, TriesSizesOnStepsAndKeepsTheBest) {
  Plan plan = planned("abcde");
  LaneTuner tuner({400, 1600}, kLimits);
  ASSERT_TRUE(tuner.is_on());
  EXPECT_EQ(tuner.end_step(at(0), plan, 1), std::nullopt);  // begins here
  std::vector<uint64_t> tried;
  int64_t now = 0;
  std::optional<Tuning> next;
  uint64_t bytes = kLimits.bucket_bytes;
  for (int step = 0; step < 1000 && !tuner.has_tried_all(); ++step) {
    now += bytes == 1600 ? 10 : 20;
    next = tuner.end_step(at(now), plan, 1);
    if (!next || tuner.has_tried_all()) continue;
    bytes = next->bucket_bytes;
    tried.push_back(bytes);
    tuner.use(*next, plan);
  }
  EXPECT_EQ(tried, (std::vector<uint64_t>{400, 1600}));
  ASSERT_TRUE(tuner.has_tried_all());
  EXPECT_EQ(next, (Tuning{1600, 1}));
  tuner.stop();
  EXPECT_FALSE(tuner.is_on());
}

TEST(LaneTuning, RestartsWhenTheTensorsChange) {
  Plan plan = planned("abcde");
  LaneTuner tuner({400}, kLimits);
  for (int step = 0; step < 9; ++step) EXPECT_EQ(tuner.end_step(at(step), plan, 1), std::nullopt);
  plan.declare(tensors("abc"));
  for (int step = 0; step < 10; ++step) EXPECT_EQ(tuner.end_step(at(step), plan, 1), std::nullopt);
  EXPECT_NE(tuner.end_step(at(11), plan, 1), std::nullopt);
}

TEST(LaneTuning, TriesThreadsOnlyWhereSomethingIsEncoded) {
  const auto count_tries = [](const std::string& codec) {
    Plan plan = planned("a", codec);
    LaneTuner tuner({400, 1600}, kLimits);
    int changes = 0;
    for (int step = 0; step < 1000 && !tuner.has_tried_all(); ++step) {
      const auto next = tuner.end_step(at(step), plan, 1);
      if (!next) continue;
      ++changes;
      if (!tuner.has_tried_all()) tuner.use(*next, plan);
    }
    return changes;
  };
  EXPECT_EQ(count_tries(""), 1 + 2);      // the start, and the two sizes
  EXPECT_EQ(count_tries("fp16"), 1 + 6);  // with 1, 2 and 4 threads
}

}  // namespace
}  // namespace horon
