#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/base/error.h"
#include "horon/device/buffer.h"

namespace horon {

// Work in order on one device. Calls return at once on a GPU; on the CPU they are done on return.
// One thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  // Any direction between host and device; pinned host memory makes it asynchronous.
  virtual void copy(void* to, const void* from, uint64_t bytes) = 0;
  // Waits until everything before is done.
  virtual void synchronize() = 0;
  // The native handle (cudaStream_t), null on the CPU.
  virtual void* handle() const = 0;
};

// What can be asked of a kind of device. The CPU's is built in; CUDA's is a part that is opened
// when there is a GPU. Thread-safe.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual DeviceKind kind() const = 0;
  virtual int device_count() const = 0;
  virtual std::string describe() const = 0;  // "NVIDIA H200, 139.8 GB"
  virtual OwnedBuffer allocate(uint64_t count, DType dtype, int device) = 0;
  // Host memory that the device copies from without a detour.
  virtual OwnedBuffer allocate_pinned(uint64_t count, DType dtype) = 0;
  virtual std::unique_ptr<Stream> make_stream(int device) = 0;

  // Events and streams of the caller's (cudaEvent_t, cudaStream_t). Where there are none:
  // UsageError. Waits, on this thread, until the device has come to the event.
  virtual void wait_event(void* event) { (void)event, no_events(); }
  // Records it: what this runtime has done for the caller is behind it.
  virtual void record_event(void* event, int device) { (void)event, (void)device, no_events(); }
  // An event of our own behind the work that is in the stream now.
  virtual std::shared_ptr<void> mark(void* stream, int device) {
    (void)stream, (void)device, no_events();
  }

 private:
  [[noreturn]] static void no_events() { throw UsageError("this device has no streams or events"); }
};

std::shared_ptr<DeviceRuntime> cpu_runtime();

// Opens libhoron_cuda.so. Throws UsageError that says why when the part, the driver or a GPU is
// missing.
std::shared_ptr<DeviceRuntime> open_cuda_runtime(const std::vector<std::string>& part_folders);

// The device that a pointer belongs to is asked from CUDA only if the part is open; "cpu",
// "cuda:1".
std::string name_of(Device device);

}  // namespace horon
