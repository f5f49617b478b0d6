// The CUDA part: device memory, pinned memory, streams. Opened by open_cuda_runtime().
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "horon/base/api.h"
#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/version.h"
#include "horon/device/stream.h"

namespace horon {
namespace {

void check(cudaError_t status, const char* action) {
  if (status != cudaSuccess) {
    throw Error(fmt::format("CUDA: {}: {}", action, cudaGetErrorString(status)));
  }
}

class CudaStream final : public Stream {
 public:
  explicit CudaStream(int device) : device_(device) {
    check(cudaSetDevice(device_), "set device");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create stream");
  }
  ~CudaStream() override {
    if (behind_ != nullptr) cudaEventDestroy(behind_);
    cudaStreamDestroy(stream_);
  }
  void copy(void* to, const void* from, uint64_t bytes) override {
    check(cudaSetDevice(device_), "set device");
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy");
  }
  void synchronize() override { check(cudaStreamSynchronize(stream_), "synchronize"); }
  void follow_caller() override {
    check(cudaSetDevice(device_), "set device");
    if (behind_ == nullptr)
      check(cudaEventCreateWithFlags(&behind_, cudaEventDisableTiming), "create an event");
    check(cudaEventRecord(behind_, cudaStreamLegacy), "record an event");
    check(cudaStreamWaitEvent(stream_, behind_, 0), "wait for an event");
  }
  void* handle() const override { return stream_; }

 private:
  int device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t behind_ = nullptr;
};

class CudaRuntime final : public DeviceRuntime {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  int device_count() const override {
    int count = 0;
    check(cudaGetDeviceCount(&count), "count devices");
    return count;
  }
  std::string describe() const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "device properties");
    return fmt::format("{} x {}, {}", device_count(), properties.name,
                       format_bytes(properties.totalGlobalMem));
  }
  OwnedBuffer allocate(uint64_t count, DType dtype, int device) override {
    void* memory = nullptr;
    check(cudaSetDevice(device), "set device");
    check(cudaMalloc(&memory, count * size_of(dtype) + 1), "allocate");
    const BufferView view{memory, count, dtype, {DeviceKind::kCuda, device}};
    return {view, std::shared_ptr<void>(memory, cudaFree)};
  }
  OwnedBuffer allocate_pinned(uint64_t count, DType dtype) override {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, count * size_of(dtype) + 1), "allocate pinned memory");
    return {BufferView{memory, count, dtype, {}}, std::shared_ptr<void>(memory, cudaFreeHost)};
  }
  std::shared_ptr<void> pin(const BufferView& host) override {
    if (cudaHostRegister(host.data, host.bytes(), cudaHostRegisterPortable) == cudaSuccess)
      return {host.data, [](void* memory) { cudaHostUnregister(memory); }};
    cudaGetLastError();  // it is not left for the next call to find
    return nullptr;
  }
  std::unique_ptr<Stream> make_stream(int device) override {
    return std::make_unique<CudaStream>(device);
  }
  void wait_event(void* event) override {
    check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "wait for an event");
  }
  // Everything before was waited for: the event only has to exist, on this thread's stream.
  void record_event(void* event, int device) override {
    check(cudaSetDevice(device), "set device");
    check(cudaEventRecord(static_cast<cudaEvent_t>(event), cudaStreamPerThread), "record an event");
  }
  std::shared_ptr<void> mark(void* stream, int device) override {
    cudaEvent_t event = nullptr;
    check(cudaSetDevice(device), "set device");
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
          "create an event");
    std::shared_ptr<void> owner(event,
                                [](void* one) { cudaEventDestroy(static_cast<cudaEvent_t>(one)); });
    check(cudaEventRecord(event, static_cast<cudaStream_t>(stream)), "record an event");
    return owner;
  }
};

}  // namespace
}  // namespace horon

extern "C" {

HORON_API const char* horon_part_version() { return horon::kBuildId; }

// Null and a reason when there is no usable device.
HORON_API horon::DeviceRuntime* horon_open_cuda(std::string* why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    *why = status == cudaSuccess ? "none found" : cudaGetErrorString(status);
    return nullptr;
  }
  return new horon::CudaRuntime();
}
}
