#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/comm/channel.h"
#include "horon/device/stream.h"

namespace horon {

struct NcclOptions {
  int local_rank = 0;  // which GPU: local_rank modulo their number
  std::vector<std::string> part_folders;
};

// What the part adds to the algorithms of `base`; known without it.
std::vector<AlgorithmRow> nccl_algorithms();

// `base` with device buffers reduced by NCCL where NCCL has the type and operation; headers, host
// buffers and the rest go through `base`. Needs the nccl part and a GPU for each rank; `device` is
// opened if it is null. Throws UsageError when the part, CUDA or a GPU is missing.
std::unique_ptr<Backend> make_nccl_backend(std::unique_ptr<Backend> base,
                                           const NcclOptions& options,
                                           std::shared_ptr<DeviceRuntime> device);

}  // namespace horon
