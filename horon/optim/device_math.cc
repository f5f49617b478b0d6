#include "horon/optim/device_math.h"

#include "horon/base/part.h"

namespace horon::optim {

Accelerator open_accelerator(const std::vector<std::string>& part_folders, int index,
                             std::shared_ptr<DeviceRuntime> runtime) {
  Accelerator found;
  found.runtime = runtime ? std::move(runtime) : open_cuda_runtime(part_folders);
  found.device = {DeviceKind::kCuda, index % found.runtime->device_count()};
  const auto part = Part::open("train_cuda", part_folders);
  found.math.reset(part->function<DeviceMath*(int)>("horon_open_device_math")(found.device.index));
  return found;
}

}  // namespace horon::optim
