#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/comm/engine/channel.h"
#include "horon/device/stream.h"

namespace horon {

// Which GPU to use, and where parts are.
struct NcclOptions {
  int local_rank = 0;  // selects the GPU: local_rank modulo their number
  std::vector<std::string> part_folders;
};

// The algorithms that the part adds to those of `base`; available without the part.
std::vector<AlgorithmRow> nccl_algorithms();

// Wraps `base`: NCCL reduces device buffers of the types and operations that it supports; headers,
// host buffers and everything else go through `base`. Needs the nccl part and a GPU for each rank;
// `device` is opened if it is null. Throws UsageError if the part, CUDA or a GPU is missing.
std::unique_ptr<Backend> make_nccl_backend(std::unique_ptr<Backend> base,
                                           const NcclOptions& options,
                                           std::shared_ptr<DeviceRuntime> device);

}  // namespace horon
