#pragma once

#include "horon/device/stream.h"

namespace horon {

// The same device; streams and pinned memory that are let go are kept for the next who asks, since
// making them takes milliseconds (the driver locks pages) and stalls the GPU. Idle pinned memory is
// at most `most_idle` bytes, streams are at most 16 a device. open_cuda_runtime() gives this.
// Thread-safe; what it gave may outlive it.
//
// A buffer may be let go only when no copy of it is under way: synchronize its stream first.
std::shared_ptr<DeviceRuntime> make_pooled(std::shared_ptr<DeviceRuntime> inner,
                                           uint64_t most_idle = 256U << 20);

}  // namespace horon
