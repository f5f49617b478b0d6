#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/base/error.h"
#include "horon/device/buffer.h"

namespace horon {

// A queue of work on one device, executed in order. On a GPU calls only queue their work; on the
// CPU they finish it. One thread at a time.
//
//   const auto stream = runtime.make_stream(0);
//   stream->copy(host.data, device.data, device.bytes());
//   stream->synchronize();  // only now may `host` be read
class Stream {
 public:
  virtual ~Stream() = default;
  // Copies in any direction between host and device; asynchronous if the host memory is pinned.
  virtual void copy(void* to, const void* from, uint64_t bytes) = 0;
  // Waits until all earlier work is done.
  virtual void synchronize() = 0;
  // Work queued here from now on starts after everything that is now in the device's default stream
  // (where programs queue their work unless they choose another stream). Does not block.
  virtual void follow_caller() {}
  // The native handle (cudaStream_t), null on the CPU.
  virtual void* handle() const = 0;
};

// Memory, streams and events of one kind of device. The CPU's is built in; CUDA's is a part that is
// opened when a GPU is present. Thread-safe. IoError if memory cannot be allocated.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  virtual DeviceKind kind() const = 0;
  virtual int device_count() const = 0;
  virtual std::string describe() const = 0;  // "NVIDIA H200, 139.8 GB"
  virtual OwnedBuffer allocate(uint64_t count, DType dtype, int device) = 0;
  // Page-locked host memory: the device copies to and from it directly and asynchronously.
  virtual OwnedBuffer allocate_pinned(uint64_t count, DType dtype) = 0;
  // Page-locks host memory of the caller until the returned object is destroyed. Null if the device
  // cannot: copies still work, but are slower.
  virtual std::shared_ptr<void> pin(const BufferView& host) {
    (void)host;
    return nullptr;
  }
  virtual std::unique_ptr<Stream> make_stream(int device) = 0;

  // Events and streams of the caller (cudaEvent_t, cudaStream_t); UsageError if the device has
  // none. Blocks this thread until the device has reached the event.
  virtual void wait_event(void* event) { (void)event, no_events(); }
  // Records the event behind the work that this runtime has queued for the caller.
  virtual void record_event(void* event, int device) { (void)event, (void)device, no_events(); }
  // Records a new event behind the work that is now in `stream`; it lives as long as the result.
  virtual std::shared_ptr<void> mark(void* stream, int device) {
    (void)stream, (void)device, no_events();
  }

 private:
  [[noreturn]] static void no_events() { throw UsageError("this device has no streams or events"); }
};

// The runtime of host memory; always available.
std::shared_ptr<DeviceRuntime> cpu_runtime();

// Opens libhoron_cuda.so in these folders, or (none given) in the usual folders of parts. Throws
// UsageError with the reason if the part, the driver or a GPU is missing.
std::shared_ptr<DeviceRuntime> open_cuda_runtime(const std::vector<std::string>& part_folders = {});

// The device's name: "cpu", "cuda:1".
std::string name_of(Device device);

}  // namespace horon
