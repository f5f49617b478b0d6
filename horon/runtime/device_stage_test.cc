#include "horon/runtime/device_stage.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "horon/base/error.h"
#include "horon/device/detail_fake_device.h"
#include "horon/runtime/detail_on_ranks.h"

namespace horon {
namespace {

// As lazy as a GPU may be: copies are done when somebody waits for them, and not before.
class LazyDevice final : public DeviceRuntime {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  int device_count() const override { return 1; }
  std::string describe() const override { return "lazy"; }
  OwnedBuffer allocate(uint64_t count, DType dtype, int device) override {
    return fake_.allocate(count, dtype, device);
  }
  OwnedBuffer allocate_pinned(uint64_t count, DType dtype) override {
    return fake_.allocate_pinned(count, dtype);
  }
  std::unique_ptr<Stream> make_stream(int device) override {
    return std::make_unique<LazyStream>(fake_.make_stream(device), followed);
  }
  char* find(const void* address) const { return fake_.find(address); }
  std::atomic<int> followed = 0;

 private:
  class LazyStream final : public Stream {
   public:
    LazyStream(std::unique_ptr<Stream> inner, std::atomic<int>& followed)
        : inner_(std::move(inner)), followed_(followed) {}
    void copy(void* to, const void* from, uint64_t bytes) override {
      queue_.push_back({to, from, bytes});
    }
    void synchronize() override {
      for (const auto& [to, from, bytes] : queue_) inner_->copy(to, from, bytes);
      queue_.clear();
    }
    void follow_caller() override { ++followed_; }
    void* handle() const override { return nullptr; }

   private:
    struct Copy {
      void* to;
      const void* from;
      uint64_t bytes;
    };
    std::unique_ptr<Stream> inner_;
    std::atomic<int>& followed_;
    std::vector<Copy> queue_;
  };
  FakeDevice fake_;
};

struct Data {
  OwnedBuffer there;
  int64_t* here;
  Data(LazyDevice& device, uint64_t count)
      : there(device.allocate(count, DType::kI64, 0)),
        here(reinterpret_cast<int64_t*>(device.find(there.view().data))) {
    std::iota(here, here + count, 1);
  }
};

constexpr uint64_t kPiece = DeviceStage::kPieceBytes / sizeof(int64_t);

TEST(DeviceStage, EveryPieceComesOnceInOrderAndGoesBack) {
  for (const uint64_t count : {uint64_t{1}, kPiece - 1, kPiece, kPiece + 1, 7 * kPiece + 5}) {
    LazyDevice device;
    auto world = make_local_world(1, {}, std::shared_ptr<DeviceRuntime>(&device, [](auto*) {}));
    Data data(device, count);
    DeviceStage stage(*world[0]);
    uint64_t at = 0;
    EXPECT_TRUE(stage.move(data.there.view(), true, [&](const BufferView& piece) {
      auto* values = static_cast<int64_t*>(piece.data);
      for (uint64_t i = 0; i < piece.count; ++i, ++at) {
        EXPECT_EQ(values[i], static_cast<int64_t>(at) + 1);
        if (testing::Test::HasFailure()) return false;
        values[i] *= -2;
      }
      return true;
    }));
    ASSERT_EQ(at, count);
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(data.here[i], -2 * static_cast<int64_t>(i + 1));
  }
}

TEST(DeviceStage, WaitsForTheCallersStreamUnlessTheDataAreReady) {
  LazyDevice device;
  auto world = make_local_world(1, {}, std::shared_ptr<DeviceRuntime>(&device, [](auto*) {}));
  Data data(device, 2 * kPiece);
  DeviceStage stage(*world[0]);
  const auto nothing = [](const BufferView&) { return true; };
  stage.move(data.there.view(), true, nothing);
  EXPECT_EQ(device.followed, 0);
  stage.move(data.there.view(), false, nothing);
  EXPECT_EQ(device.followed, 2);
}

TEST(DeviceStage, ARefusedFirstPieceChangesNothing) {
  LazyDevice device;
  auto world = make_local_world(1, {}, std::shared_ptr<DeviceRuntime>(&device, [](auto*) {}));
  Data data(device, 3 * kPiece);
  DeviceStage stage(*world[0]);
  EXPECT_FALSE(stage.move(data.there.view(), true, [](const BufferView& piece) {
    std::memset(piece.data, 0, piece.bytes());
    return false;
  }));
  for (uint64_t i = 0; i < 3 * kPiece; ++i) ASSERT_EQ(data.here[i], static_cast<int64_t>(i + 1));
}

TEST(DeviceStage, NothingIsCopiedAnyMoreAfterAFailure) {
  LazyDevice device;
  auto world = make_local_world(1, {}, std::shared_ptr<DeviceRuntime>(&device, [](auto*) {}));
  DeviceStage stage(*world[0]);
  int calls = 0;
  {
    Data data(device, 5 * kPiece);
    EXPECT_THROW(stage.move(data.there.view(), true,
                            [&](const BufferView&) -> bool {
                              if (++calls == 3) throw Error("test");
                              return true;
                            }),
                 Error);
  }  // a copy that is still queued would touch this memory later
  Data next(device, kPiece);
  stage.move(next.there.view(), true, [](const BufferView&) { return true; });
  EXPECT_EQ(calls, 3);
}

TEST(DeviceStage, NamedSumsOfDeviceMemoryAreRight) {
  constexpr uint64_t kCount = 3 * kPiece + 17;
  const auto device = std::make_shared<LazyDevice>();
  on_ranks(
      2,
      [&](Runtime& runtime) {
        for (int step = 0; step < 3; ++step) {
          Data data(*device, kCount);
          bool was_ready = false;
          NamedOptions options;
          if (step > 0) options.ready = [&] { was_ready = true; };
          runtime.all_reduce("large", data.there.view(), options).wait();
          EXPECT_EQ(was_ready, step > 0);
          for (uint64_t i = 0; i < kCount; ++i)
            ASSERT_EQ(data.here[i], 2 * static_cast<int64_t>(i + 1));
        }
      },
      {}, device);
}

// Pieces that go through the host are not those of host memory: a clear error instead of a hang.
TEST(DeviceStage, HostAndDeviceMemoryDoNotMeetInOneOperation) {
  const auto device = std::make_shared<LazyDevice>();
  on_ranks(
      2,
      [&](Runtime& runtime) {
        constexpr uint64_t kCount = DeviceStage::kPieceBytes / sizeof(int64_t) * 2 + 5;
        Data data(*device, kCount);
        std::vector<int64_t> host(kCount, 1);
        const BufferView mine = runtime.rank() == 0 ? data.there.view() : view_of(host);
        EXPECT_THROW(runtime.all_reduce("", mine).wait(), UsageError);
        EXPECT_THROW(runtime.all_reduce("named", mine).wait(), UsageError);
        runtime.all_reduce("", view_of(host)).wait();
        EXPECT_EQ(host.front(), 2);
      },
      {}, device);
}

}  // namespace
}  // namespace horon
