#include "horon/runtime/bucket_packer.h"

#include <gtest/gtest.h>

#include "horon/comm/bootstrap.h"

namespace horon {
namespace {

TensorSpec tensor(const std::string& name, uint64_t count) {
  TensorSpec spec;
  spec.name = name;
  spec.count = count;
  return spec;
}

Submission operation(const TensorSpec& spec, BufferView in, BufferView out) {
  Submission item;
  item.spec = spec;
  item.request = Request::all_reduce(in);
  item.request.out = out;
  return item;
}

struct Fixture {
  std::vector<std::unique_ptr<Communicator>> world = make_local_world(1);
  Mover mover{*world[0], {}};
  BucketPacker packer{mover, nullptr};
  std::vector<TensorSpec> specs = {tensor("a", 10), tensor("b", 20)};
  Plan plan{PlanLimits{1U << 20, 1U << 20}};  // both in one bucket
};

TEST(BucketPacker, WhatLiesInTheBucketIsNotCopied) {
  Fixture of;
  of.plan.declare(of.specs);
  std::vector<OwnedBuffer> buckets;
  std::vector<BufferView> views;
  of.packer.declare(of.specs, of.plan, buckets, views);
  ASSERT_EQ(buckets.size(), 1U);
  const auto packed = of.packer.pack(
      {operation(of.specs[0], views[0], views[0]), operation(of.specs[1], views[1], views[1])},
      of.plan, 0);
  EXPECT_EQ(packed.bytes_copied, 0U);
  EXPECT_FALSE(packed.leaves);
  EXPECT_EQ(packed.whole.data, buckets[0].view().data);
  EXPECT_EQ(packed.whole.count, of.plan.buckets()[0].count);
}

TEST(BucketPacker, WhatLiesElsewhereIsCopiedInAndOut) {
  Fixture of;
  of.plan.learn(of.specs, {});
  of.plan.learn(of.specs, {});
  ASSERT_EQ(of.plan.buckets().size(), 1U);
  std::vector<float> a(10, 1.0F);
  std::vector<float> b(20, 2.0F);
  std::vector<float> result(20);
  const std::vector<Submission> items = {operation(of.specs[0], view_of(a), view_of(a)),
                                         operation(of.specs[1], view_of(b), view_of(result))};
  const auto packed = of.packer.pack(items, of.plan, 0);
  EXPECT_EQ(packed.bytes_copied, 2U * (10 + 20) * sizeof(float));
  EXPECT_TRUE(packed.leaves);
  auto* numbers = static_cast<float*>(packed.whole.data);
  EXPECT_EQ(numbers[0], 1.0F);
  EXPECT_EQ(numbers[packed.layout.offsets[1]], 2.0F);
  for (uint64_t i = 0; i < packed.whole.count; ++i) numbers[i] *= 10;
  of.packer.unpack(items, packed);
  EXPECT_EQ(a, std::vector<float>(10, 10.0F));
  EXPECT_EQ(b, std::vector<float>(20, 2.0F));  // an input that is no output is not written
  EXPECT_EQ(result, std::vector<float>(20, 20.0F));
  // The next step has the same memory.
  EXPECT_EQ(of.packer.pack(items, of.plan, 0).whole.data, packed.whole.data);
}

TEST(BucketPacker, AnInputInTheBucketWithItsResultElsewhereIsOnlyCopiedOut) {
  Fixture of;
  of.plan.declare(of.specs);
  std::vector<OwnedBuffer> buckets;
  std::vector<BufferView> views;
  of.packer.declare(of.specs, of.plan, buckets, views);
  std::vector<float> result(20);
  const auto packed = of.packer.pack({operation(of.specs[0], views[0], views[0]),
                                      operation(of.specs[1], views[1], view_of(result))},
                                     of.plan, 0);
  EXPECT_EQ(packed.bytes_copied, 20U * sizeof(float));
  EXPECT_TRUE(packed.leaves);
}

}  // namespace
}  // namespace horon
