#include "horon/device/stream.h"

#include <fmt/format.h>

#include <cstring>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/thread.h"
#include "horon/device/pool.h"

namespace horon {
namespace {

class CpuStream final : public Stream {
 public:
  void copy(void* to, const void* from, uint64_t bytes) override { std::memmove(to, from, bytes); }
  void synchronize() override {}
  void* handle() const override { return nullptr; }
};

class CpuRuntime final : public DeviceRuntime {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  int device_count() const override { return 1; }
  std::string describe() const override {
    return fmt::format("{} usable cores", usable_cores().size());
  }
  OwnedBuffer allocate(uint64_t count, DType dtype, int) override {
    return OwnedBuffer::host(count, dtype);
  }
  OwnedBuffer allocate_pinned(uint64_t count, DType dtype) override {
    return OwnedBuffer::host(count, dtype);
  }
  std::unique_ptr<Stream> make_stream(int) override { return std::make_unique<CpuStream>(); }
};

}  // namespace

std::shared_ptr<DeviceRuntime> cpu_runtime() { return std::make_shared<CpuRuntime>(); }

std::shared_ptr<DeviceRuntime> open_cuda_runtime(const std::vector<std::string>& folders) {
  const auto part = Part::open("cuda", folders.empty() ? part_folders("") : folders);
  using Factory = DeviceRuntime*(std::string*);
  std::string why;
  DeviceRuntime* runtime = part->function<Factory>("horon_open_cuda")(&why);
  if (runtime == nullptr) throw UsageError("no CUDA device: " + why);
  return make_pooled({runtime, [part](DeviceRuntime* made) { delete made; }});
}

std::string name_of(Device device) {
  return device.is_cpu() ? "cpu" : fmt::format("cuda:{}", device.index);
}

}  // namespace horon
