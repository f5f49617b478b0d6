#include "horon/c/convert.h"

namespace horon::c {

DType dtype_of(int dtype) {
  require(dtype >= 0 && dtype < static_cast<int>(kDTypeCount),
          "there is no type " + std::to_string(dtype));
  return static_cast<DType>(dtype);
}

Device device_of(int kind, int index) {
  require(kind == HORON_CPU || kind == HORON_CUDA, "there is no device " + std::to_string(kind));
  return kind == HORON_CPU ? Device{} : Device{DeviceKind::kCuda, index};
}

NamedOptions options_of(const horon_options* given) {
  const horon_options read = read_struct(given, "horon_options");
  require(read.op >= HORON_SUM && read.op <= HORON_PRODUCT,
          "there is no reduce operation " + std::to_string(read.op));
  NamedOptions options;
  options.op = static_cast<ReduceOp>(read.op);
  options.reduction = read.exact != 0 ? Reduction::kExact : Reduction::kFast;
  options.prescale = read.prescale == 0 ? 1.0 : read.prescale;
  options.postscale = read.postscale == 0 ? 1.0 : read.postscale;
  options.priority = read.priority;
  options.set = read.set;
  options.over_members = read.over_members != 0;
  options.tag = read.tag;
  if (read.step > 0) options.step = read.step;
  if (read.codec != nullptr) options.codec = read.codec;
  return options;
}

}  // namespace horon::c
