#pragma once

#include <vector>

#include "horon/device/stream.h"

// Small work on whole buffers, for callers whose numbers do not live in a bucket. Device memory
// takes a detour through the host where it must be computed on; `runtime` may be null for host
// memory (UsageError otherwise).
namespace horon {

// data := data * factor. f16 and bf16 are multiplied in f32 and rounded once, integers in f64 and
// cut. Bools: UsageError unless the factor is 1.
void scale(const BufferView& data, double factor, DeviceRuntime* runtime = nullptr);

struct CopyJob {
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t bytes = 0;
};
// All of one place: host memory by several threads when it pays, device memory by its own copies.
void copy_all(const std::vector<CopyJob>& jobs, int threads, const Device& place = {},
              DeviceRuntime* runtime = nullptr);

}  // namespace horon
