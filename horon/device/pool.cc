#include "horon/device/pool.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <utility>

namespace horon {
namespace {

constexpr uint64_t kSmallest = 4096;  // bytes of a pinned block
constexpr size_t kMostStreams = 16;   // idle, of a device

// What is idle. Shared with everything that was given out.
class Shelf {
 public:
  Shelf(std::shared_ptr<DeviceRuntime> device, uint64_t most_idle)
      : device_(std::move(device)), most_idle_(most_idle) {}

  // Blocks are powers of two, so that buckets of about one size share them.
  OwnedBuffer take_block(uint64_t bytes) {
    const uint64_t size = std::bit_ceil(std::max(bytes, kSmallest));
    {
      const std::lock_guard lock(mutex_);
      const auto found = blocks_.find(size);
      if (found != blocks_.end()) {
        OwnedBuffer block = std::move(found->second);
        blocks_.erase(found);
        idle_ -= size;
        return block;
      }
    }
    return device_->allocate_pinned(size, DType::kU8);
  }
  void put_block(OwnedBuffer block) {
    const uint64_t size = block.view().bytes();
    const std::lock_guard lock(mutex_);
    if (idle_ + size > most_idle_) return;  // freed
    idle_ += size;
    blocks_.emplace(size, std::move(block));
  }

  std::unique_ptr<Stream> take_stream(int device) {
    {
      const std::lock_guard lock(mutex_);
      auto& idle = streams_[device];
      if (!idle.empty()) {
        std::unique_ptr<Stream> stream = std::move(idle.back());
        idle.pop_back();
        return stream;
      }
    }
    return device_->make_stream(device);
  }
  void put_stream(int device, std::unique_ptr<Stream> stream) {
    const std::lock_guard lock(mutex_);
    auto& idle = streams_[device];
    if (idle.size() < kMostStreams) idle.push_back(std::move(stream));
  }

 private:
  std::shared_ptr<DeviceRuntime> device_;  // outlives what it made
  uint64_t most_idle_;
  std::mutex mutex_;  // guards all below
  uint64_t idle_ = 0;
  std::multimap<uint64_t, OwnedBuffer> blocks_;
  std::map<int, std::vector<std::unique_ptr<Stream>>> streams_;
};

class PooledStream final : public Stream {
 public:
  PooledStream(std::shared_ptr<Shelf> shelf, int device)
      : shelf_(std::move(shelf)), device_(device), inner_(shelf_->take_stream(device)) {}
  ~PooledStream() override { shelf_->put_stream(device_, std::move(inner_)); }
  void copy(void* to, const void* from, uint64_t bytes) override { inner_->copy(to, from, bytes); }
  void synchronize() override { inner_->synchronize(); }
  void follow_caller() override { inner_->follow_caller(); }
  void* handle() const override { return inner_->handle(); }

 private:
  std::shared_ptr<Shelf> shelf_;
  int device_;
  std::unique_ptr<Stream> inner_;
};

class PooledRuntime final : public DeviceRuntime {
 public:
  PooledRuntime(std::shared_ptr<DeviceRuntime> inner, uint64_t most_idle)
      : inner_(std::move(inner)), shelf_(std::make_shared<Shelf>(inner_, most_idle)) {}
  DeviceKind kind() const override { return inner_->kind(); }
  int device_count() const override { return inner_->device_count(); }
  std::string describe() const override { return inner_->describe(); }
  OwnedBuffer allocate(uint64_t count, DType dtype, int device) override {
    return inner_->allocate(count, dtype, device);
  }
  OwnedBuffer allocate_pinned(uint64_t count, DType dtype) override {
    OwnedBuffer block = shelf_->take_block(count * size_of(dtype));
    BufferView view = block.view();
    view.count = count;
    view.dtype = dtype;
    auto lent = std::make_unique<OwnedBuffer>(std::move(block));
    return {view, std::shared_ptr<void>(lent.release(), [shelf = shelf_](void* memory) {
              const std::unique_ptr<OwnedBuffer> back(static_cast<OwnedBuffer*>(memory));
              shelf->put_block(std::move(*back));
            })};
  }
  std::shared_ptr<void> pin(const BufferView& host) override { return inner_->pin(host); }
  std::unique_ptr<Stream> make_stream(int device) override {
    return std::make_unique<PooledStream>(shelf_, device);
  }
  void wait_event(void* event) override { inner_->wait_event(event); }
  void record_event(void* event, int device) override { inner_->record_event(event, device); }
  std::shared_ptr<void> mark(void* stream, int device) override {
    return inner_->mark(stream, device);
  }

 private:
  std::shared_ptr<DeviceRuntime> inner_;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace

std::shared_ptr<DeviceRuntime> make_pooled(std::shared_ptr<DeviceRuntime> inner,
                                           uint64_t most_idle) {
  return std::make_shared<PooledRuntime>(std::move(inner), most_idle);
}

}  // namespace horon
