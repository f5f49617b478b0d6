#include "horon/runtime/plan.h"

#include <gtest/gtest.h>

#include "horon/base/error.h"
#include "horon/runtime/agreement.h"

namespace horon {
namespace {

TensorSpec tensor(const std::string& name, uint64_t count = 100, DType dtype = DType::kF32) {
  TensorSpec spec;
  spec.name = name;
  spec.count = count;
  spec.dtype = dtype;
  return spec;
}

std::vector<TensorSpec> tensors(const std::string& names) {
  std::vector<TensorSpec> specs;
  for (const char name : names) specs.push_back(tensor(std::string(1, name)));
  return specs;
}

TEST(Specs, UnpackReturnsWhatWasPacked) {
  auto specs = tensors("ab");
  specs[0].prescale = 0.125;
  specs[1].root = 3;
  specs[1].kind = OpKind::kBroadcast;
  specs[1].layout = short_layout(std::string(1000, 'x'));
  EXPECT_LT(specs[1].layout.size(), 300U);
  EXPECT_NE(specs[1].layout, short_layout(std::string(1000, 'x') + "y"));
  EXPECT_EQ(unpack_specs(pack_specs(specs)), specs);
  const std::string bytes = pack_specs(specs);
  for (size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_THROW(unpack_specs(bytes.substr(0, cut)), Error);
}

TEST(Buckets, FirstSmallThenFullAndAligned) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 10; ++i) specs.push_back(tensor(std::to_string(i), 1001));
  const auto buckets = plan_buckets(specs, {4000, 12000});
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[0].tensors, (std::vector<size_t>{0}));
  EXPECT_EQ(buckets[1].tensors, (std::vector<size_t>{1, 2, 3}));
  EXPECT_EQ(buckets[3].tensors, (std::vector<size_t>{7, 8, 9}));
  for (const Bucket& bucket : buckets) {
    for (const uint64_t offset : bucket.offsets) EXPECT_EQ(offset * 4 % 64, 0U);
    EXPECT_EQ(bucket.count, bucket.offsets.back() + 1001);
  }
}

TEST(Buckets, TheFirstIsNoLargerThanTheOthers) {
  PlanLimits limits;
  limits.bucket_bytes = 0;
  EXPECT_EQ(plan_buckets(tensors("abcde"), limits).size(), 5U);  // each alone
  limits.bucket_bytes = 800;
  EXPECT_EQ(plan_buckets(tensors("abcde"), limits).size(), 3U);  // ab, cd, e
}

TEST(Buckets, OnlyWhatFitsTogether) {
  auto specs = tensors("abcdef");
  specs[1].dtype = DType::kF64;
  specs[2].kind = OpKind::kBroadcast;
  specs[3].op = ReduceOp::kMax;
  specs[4].postscale = 0.5;
  const auto buckets = plan_buckets(specs, {1U << 20, 1U << 20});
  ASSERT_EQ(buckets.size(), 5U);
  EXPECT_EQ(buckets.back().tensors, (std::vector<size_t>{0, 5}));
}

TEST(Plans, BucketsRepeatCyclically) {
  Plan plan({400, 800});
  plan.declare(tensors("abcde"));
  ASSERT_EQ(plan.buckets().size(), 3U);  // a, bc, de
  EXPECT_EQ(plan.expected(), 0);
  plan.advance();
  plan.advance();
  EXPECT_EQ(plan.names_in(plan.expected()), (std::vector<std::string>{"d", "e"}));
  plan.advance();
  EXPECT_EQ(plan.expected(), 0);
  EXPECT_THROW(plan.declare(tensors("aa")), UsageError);
}

TEST(Plans, NamesAreLearntAndForgotten) {
  Plan plan({1, 1});
  plan.learn(tensors("ab"), {});
  plan.learn(tensors("c"), {});
  EXPECT_TRUE(plan.buckets().empty());  // what comes once may never come again
  plan.learn(tensors("ab"), {});
  plan.learn(tensors("c"), {});
  EXPECT_EQ(plan.buckets().size(), 3U);
  EXPECT_EQ(plan.expected(), 0);
  const uint64_t version = plan.version();
  plan.learn(tensors("ab"), {"c"});  // c did not come
  EXPECT_NE(plan.version(), version);
  EXPECT_LT(plan.bucket_of("c"), 0);
  EXPECT_NE(plan.find("c"), nullptr);
  for (int i = 0; i < 4; ++i) plan.learn(tensors("c"), {});  // but comes again and again
  EXPECT_GE(plan.bucket_of("c"), 0);
  auto other = tensors("a");
  other[0].count = 7;
  plan.learn(other, {});
  EXPECT_EQ(plan.find("a")->count, 7U);
}

TEST(Plans, DeclaredTensorsKeepTheirAddresses) {
  Plan plan({1, 10000});
  plan.declare(tensors("abcde"));
  plan.learn(tensors("xy"), {});
  plan.learn(tensors("xy"), {});
  ASSERT_EQ(plan.buckets().size(), 4U);  // a, bcde, x, y
  EXPECT_EQ(plan.buckets()[1].home, 1);
  EXPECT_EQ(plan.buckets()[2].home, -1);
  const Bucket whole = plan.buckets()[1];
  plan.learn(tensors("abce"), {"d"});
  // The bucket is cut where d was; bytes that come stay where they are.
  EXPECT_EQ(plan.names_in(1), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(plan.names_in(2), std::vector<std::string>{"e"});
  EXPECT_EQ(plan.buckets()[2].home, 1);
  EXPECT_EQ(plan.buckets()[2].home_offset, whole.offsets[3]);
  EXPECT_EQ(plan.buckets()[1].count, whole.offsets[1] + 100);
  for (int i = 0; i < 4; ++i) plan.learn(tensors("d"), {});
  EXPECT_EQ(plan.buckets()[1].key, whole.key);
  EXPECT_EQ(plan.buckets()[1].offsets, whole.offsets);
  // Another size does not fit there.
  auto other = tensors("c");
  other[0].count = 7;
  plan.learn(other, {});
  EXPECT_EQ(plan.names_in(1), std::vector<std::string>{"b"});
  EXPECT_EQ(plan.names_in(2), (std::vector<std::string>{"d", "e"}));
  EXPECT_EQ(plan.buckets()[static_cast<size_t>(plan.bucket_of("c"))].home, -1);
  plan.restart();
  EXPECT_EQ(plan.buckets()[1].key, whole.key);
  EXPECT_EQ(plan.find("x"), nullptr);
}

// Buckets may change in the middle of a step: what has been run in it is not missing.
TEST(Plans, TensorsThatHaveRunInThisRoundAreNotSkipped) {
  Plan plan({1, 10000});
  plan.declare(tensors("abcde"));      // a, bcde
  plan.learn(tensors("abce"), {"d"});  // a, bc, e
  for (int i = 0; i < 3; ++i) plan.learn(tensors("d"), {});
  plan.learn(tensors("abcd"), {});  // a, bcde again; e is still to come
  EXPECT_EQ(plan.skipped_before("e"), (std::vector<std::string>{"e"}));
  plan.learn(tensors("e"), {});
  plan.learn(tensors("a"), {});  // the next step
  EXPECT_EQ(plan.skipped_before("e"), (std::vector<std::string>{"b", "c", "d", "e"}));
}

TEST(Plans, ForgetNamesThatNeverComeAgain) {
  Plan plan({1, 1});
  plan.declare(tensors("a"));
  for (int i = 0; i < 5000; ++i) {
    plan.learn({tensor("once" + std::to_string(i))}, {});
    if (i % 100 == 0) plan.learn(tensors("b"), {});  // comes now and then
  }
  int known = 0;
  for (int i = 0; i < 5000; ++i) known += plan.find("once" + std::to_string(i)) != nullptr ? 1 : 0;
  EXPECT_LT(known, 1000);
  EXPECT_EQ(plan.find("once0"), nullptr);
  EXPECT_NE(plan.find("once4999"), nullptr);
  EXPECT_GE(plan.bucket_of("a"), 0);
  EXPECT_GE(plan.bucket_of("b"), 0);
}

PendingReport report(const std::string& names, bool stuck = false) {
  return {tensors(names), stuck, true};
}

std::string names_of(const std::vector<TensorSpec>& specs) {
  std::string names;
  for (const TensorSpec& spec : specs) names += spec.name;
  return names;
}

const std::vector<int> kRanks = {0, 1};

TEST(Decisions, WhatAllHaveRunsInTheFirstRanksOrder) {
  const Plan plan({1, 1});
  const Decision decision = decide(std::vector{report("cab"), report("bxca")}, kRanks, plan);
  EXPECT_EQ(names_of(decision.run), "cab");
  EXPECT_TRUE(decision.progress);
  PendingReport again = report("x");
  again.fresh = false;
  PendingReport nothing;
  EXPECT_FALSE(decide(std::vector{nothing, again}, kRanks, plan).progress);
}

TEST(Decisions, MismatchesAreTheSameTextForAll) {
  const Plan plan({1, 1});
  std::vector<PendingReport> reports = {report("ab"), report("ab")};
  reports[1].pending[0].count = 7;
  const Decision decision = decide(reports, kRanks, plan);
  EXPECT_EQ(names_of(decision.run), "b");
  EXPECT_EQ(decision.wrong.at("a"),
            "ranks requested different operations: rank 0: all_reduce sum f32[100] 'a', rank 1: "
            "all_reduce sum "
            "f32[7] 'a'");
  reports[1].pending[0] = reports[0].pending[0];
  reports[1].pending[0].priority = 9;
  EXPECT_EQ(decide(reports, kRanks, plan).wrong.at("a"),
            "ranks requested different operations: rank 0: all_reduce sum f32[100] 'a', rank 1: "
            "all_reduce sum f32[100] urgent 'a'");
  reports[0].pending[0].priority = 1;  // how urgent is each rank's own
  EXPECT_TRUE(decide(reports, kRanks, plan).wrong.empty());
  // Both sides of a mismatch differ to the eye.
  for (TensorSpec& spec : reports[0].pending) spec.layout = "sum of f32[3], f32[4]";
  for (TensorSpec& spec : reports[1].pending) spec.layout = "sum of f32[3], f32[5]";
  const std::string text = decide(reports, kRanks, plan).wrong.at("b");
  EXPECT_NE(text.find("f32[4]"), std::string::npos) << text;
  EXPECT_NE(text.find("f32[5]"), std::string::npos) << text;
}

TEST(Decisions, PartsOfBucketsRunOnlyWhenSomebodyIsStuck) {
  Plan plan({1, 1000});
  plan.declare(tensors("abcd"));  // a, bcd
  EXPECT_EQ(names_of(decide(std::vector{report("ab"), report("abx")}, kRanks, plan).run), "a");
  const Decision decision = decide(std::vector{report("abc"), report("abcx", true)}, kRanks, plan);
  EXPECT_EQ(names_of(decision.run), "abc");
  EXPECT_EQ(decision.skipped, std::vector<std::string>{"d"});
  // One rank has it, so it is late, not gone.
  EXPECT_TRUE(
      decide(std::vector{report("abc"), report("abcd", true)}, kRanks, plan).skipped.empty());
}

}  // namespace
}  // namespace horon
