#pragma once

#include <vector>

#include "horon/device/stream.h"

// Operations on whole buffers, for data outside buckets. Device memory is staged through the host
// where it must be computed on; `runtime` may be null for host memory (else UsageError).
// `is_ready`: device memory can be read and written now; else after what is in the device's default
// stream.
namespace horon {

// data := data * factor. f16 and bf16 are multiplied in f32 and rounded once, integers in f64 and
// truncated. Bools: UsageError unless the factor is 1.
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
