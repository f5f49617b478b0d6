#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "horon/base/error.h"
#include "horon/device/stream.h"

// A device for tests on machines without a GPU. Its addresses are inaccessible: code that treats
// them as host memory gets a segmentation fault. Not zeroed.
namespace horon {

class FakeDevice final : public DeviceRuntime {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  int device_count() const override { return 1; }
  std::string describe() const override { return "a fake"; }

  OwnedBuffer allocate(uint64_t count, DType dtype, int device) override {
    const size_t size = count * size_of(dtype) + 1;
    const int file = memfd_create("fake device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(size)) != 0) throw io_error("fake device");
    void* hidden = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void* shown = mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
    close(file);
    if (hidden == MAP_FAILED || shown == MAP_FAILED) throw io_error("fake device");
    std::memset(hidden, 0xff, size);
    const std::lock_guard lock(mutex_);
    regions_[static_cast<char*>(shown)] = {static_cast<char*>(hidden), size};
    return {BufferView{shown, count, dtype, {DeviceKind::kCuda, device}},
            std::shared_ptr<void>(shown, [this](void* memory) { release(memory); })};
  }
  OwnedBuffer allocate_pinned(uint64_t count, DType dtype) override {
    return OwnedBuffer::host(count, dtype);
  }
  std::unique_ptr<Stream> make_stream(int) override { return std::make_unique<FakeStream>(*this); }

  // The host address of this device's memory; the address itself if it is host memory.
  char* find(const void* address) const {
    auto* at = static_cast<char*>(const_cast<void*>(address));
    const std::lock_guard lock(mutex_);
    auto next = regions_.upper_bound(at);
    if (next == regions_.begin()) return at;
    const auto& [shown, region] = *--next;
    return at < shown + region.size ? region.hidden + (at - shown) : at;
  }
  bool owns(const void* address) const { return find(address) != address; }

 private:
  struct Region {
    char* hidden;
    size_t size;
  };
  class FakeStream final : public Stream {
   public:
    explicit FakeStream(FakeDevice& device) : device_(device) {}
    void copy(void* to, const void* from, uint64_t bytes) override {
      std::memmove(device_.find(to), device_.find(from), bytes);
    }
    void synchronize() override {}
    void* handle() const override { return &device_; }

   private:
    FakeDevice& device_;
  };
  void release(void* shown) {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(static_cast<char*>(shown));
    munmap(found->second.hidden, found->second.size);
    munmap(shown, found->second.size);
    regions_.erase(found);
  }

  mutable std::mutex mutex_;
  std::map<char*, Region> regions_;
};

}  // namespace horon
