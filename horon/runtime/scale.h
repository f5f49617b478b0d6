#pragma once

#include "horon/device/buffer.h"

namespace horon {

// data := data * factor, for floating types (others: UsageError unless the factor is 1). Host
// memory. f16 and bf16 are multiplied in f32 and rounded once.
void scale(const BufferView& data, double factor);

// Copies between host buffers of one size, by several threads when it pays.
struct CopyJob {
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t bytes = 0;
};
void copy_all(const std::vector<CopyJob>& jobs, int threads);

}  // namespace horon
