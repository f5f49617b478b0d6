#pragma once

#include "horon/device/stream.h"

namespace horon {

// Wraps a device so that released streams and pinned memory are kept and reused: creating them
// takes milliseconds (the driver locks pages) and stalls the GPU. Keeps at most `most_idle` bytes
// of pinned memory and 16 streams per device. Thread-safe. Buffers and streams may outlive the
// result. open_cuda_runtime() returns such a device.
//
// Release a buffer only when no copy of it is queued: synchronize its stream first.
std::shared_ptr<DeviceRuntime> make_pooled(std::shared_ptr<DeviceRuntime> inner,
                                           uint64_t most_idle = 256U << 20);

}  // namespace horon
