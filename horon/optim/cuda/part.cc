// The door of libhoron_train_cuda.so.
#include "horon/base/api.h"
#include "horon/base/version.h"
#include "horon/optim/device_math.h"

horon::optim::DeviceMath* horon_open_device_math_here(int device);

extern "C" HORON_API const char* horon_part_version() { return horon::kBuildId; }
extern "C" HORON_API horon::optim::DeviceMath* horon_open_device_math(int device) {
  return horon_open_device_math_here(device);
}
