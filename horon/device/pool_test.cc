#include "horon/device/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace horon {
namespace {

// Counts what is made and destroyed.
class CountingDevice final : public DeviceRuntime {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  int device_count() const override { return 2; }
  std::string describe() const override { return "counts"; }
  OwnedBuffer allocate(uint64_t count, DType dtype, int) override {
    return OwnedBuffer::host(count, dtype);
  }
  OwnedBuffer allocate_pinned(uint64_t count, DType dtype) override {
    ++blocks;
    const OwnedBuffer host = OwnedBuffer::host(count, dtype);
    return {host.view(), std::shared_ptr<void>(new OwnedBuffer(host), [this](void* one) {
              delete static_cast<OwnedBuffer*>(one);
              ++freed;
            })};
  }
  std::unique_ptr<Stream> make_stream(int device) override {
    ++streams;
    return cpu_runtime()->make_stream(device);
  }
  std::atomic<int> blocks = 0;
  std::atomic<int> freed = 0;
  std::atomic<int> streams = 0;
};

TEST(Pool, PinnedMemoryIsUsedAgainByBuffersOfAboutTheSameSize) {
  const auto device = std::make_shared<CountingDevice>();
  const auto pool = make_pooled(device);
  void* first = nullptr;
  {
    const OwnedBuffer buffer = pool->allocate_pinned(1000, DType::kF32);
    EXPECT_EQ(buffer.view().count, 1000U);
    EXPECT_EQ(buffer.view().dtype, DType::kF32);
    first = buffer.view().data;
    const OwnedBuffer other = pool->allocate_pinned(1000, DType::kF32);
    EXPECT_NE(other.view().data, first);
  }
  EXPECT_EQ(device->blocks, 2);
  const OwnedBuffer again = pool->allocate_pinned(500, DType::kF64);
  EXPECT_EQ(device->blocks, 2);
  const OwnedBuffer larger = pool->allocate_pinned(2000, DType::kF32);
  EXPECT_EQ(device->blocks, 3);
  EXPECT_EQ(device->freed, 0);
}

TEST(Pool, KeepsNoMoreIdleMemoryThanItMay) {
  const auto device = std::make_shared<CountingDevice>();
  const auto pool = make_pooled(device, 3 * 4096);
  {
    std::vector<OwnedBuffer> all;
    for (int i = 0; i < 5; ++i) all.push_back(pool->allocate_pinned(4096, DType::kU8));
  }
  EXPECT_EQ(device->freed, 2);
}

TEST(Pool, StreamsAreUsedAgainOnTheirOwnDevice) {
  const auto device = std::make_shared<CountingDevice>();
  const auto pool = make_pooled(device);
  pool->make_stream(0);
  pool->make_stream(0);
  EXPECT_EQ(device->streams, 1);
  pool->make_stream(1);
  EXPECT_EQ(device->streams, 2);
  {
    std::vector<std::unique_ptr<Stream>> many;
    for (int i = 0; i < 20; ++i) many.push_back(pool->make_stream(0));
  }
  EXPECT_EQ(device->streams, 21);
  std::vector<std::unique_ptr<Stream>> many;
  for (int i = 0; i < 20; ++i) many.push_back(pool->make_stream(0));
  EXPECT_EQ(device->streams, 25);  // 16 were kept
}

TEST(Pool, WhatItGaveMayOutliveIt) {
  auto device = std::make_shared<CountingDevice>();
  auto pool = make_pooled(device);
  auto stream = pool->make_stream(0);
  OwnedBuffer buffer = pool->allocate_pinned(10, DType::kF32);
  pool.reset();
  stream->copy(buffer.view().data, buffer.view().data, 0);
  stream.reset();
  EXPECT_EQ(device->freed, 0);
  buffer = OwnedBuffer();
  EXPECT_EQ(device->freed, 1);
}

TEST(Pool, IsForManyThreads) {
  const auto pool = make_pooled(std::make_shared<CountingDevice>());
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 1; i < 300; ++i) {
        const OwnedBuffer buffer = pool->allocate_pinned(i * 17, DType::kU8);
        std::memset(buffer.view().data, 1, i * 17);
        pool->make_stream(0)->synchronize();
      }
    });
  }
}

}  // namespace
}  // namespace horon
