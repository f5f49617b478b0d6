#include "horon/comm/nccl/nccl_part.h"

#include "horon/base/error.h"
#include "horon/base/part.h"

namespace horon {

std::unique_ptr<Backend> make_nccl_backend(std::unique_ptr<Backend> base,
                                           const NcclOptions& options,
                                           std::shared_ptr<DeviceRuntime> device) {
  const auto part = Part::open("nccl", options.part_folders);
  if (!device) device = open_cuda_runtime(options.part_folders);
  using Factory =
      Backend*(std::unique_ptr<Backend>*, std::shared_ptr<DeviceRuntime>*, int, std::string*);
  std::string why;
  Backend* made =
      part->function<Factory>("horon_nccl_backend")(&base, &device, options.local_rank, &why);
  if (made == nullptr) throw UsageError("nccl: " + why);
  return std::unique_ptr<Backend>(made);
}

}  // namespace horon
