#pragma once

#include <vector>

#include "horon/device/stream.h"

// Operations on whole buffers outside buckets. `runtime` may be null for host memory (UsageError
// for device memory). `is_ready`: device memory can be used now; otherwise the operation waits for
// the work that is now in the device's default stream.
namespace horon {

// data := data * factor. f16 and bf16 are multiplied in f32 and rounded once, integers in f64 and
// truncated. Bools: UsageError unless the factor is 1. Device memory is staged through the host.
void scale(const BufferView& data, double factor, DeviceRuntime* runtime = nullptr,
           bool is_ready = false);

// One copy of `bytes` bytes.
struct CopyJob {
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t bytes = 0;
};
// Runs all copies, which must be on one device: host memory with several threads if worthwhile,
// device memory with device copies.
void copy_all(const std::vector<CopyJob>& jobs, int threads, const Device& device = {},
              DeviceRuntime* runtime = nullptr, bool is_ready = false);

}  // namespace horon
