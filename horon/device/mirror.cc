#include "horon/device/mirror.h"

#include "horon/base/error.h"

namespace horon {

HostMirror::HostMirror(const BufferView& view, bool reads, DeviceRuntime* runtime, bool is_ready)
    : original_(view), is_ready_(is_ready) {
  if (view.count == 0) original_.device = {};  // nothing to copy: as good as host memory
  if (view.device.is_cpu() || view.count == 0) return;
  require(runtime != nullptr, "a device buffer needs the CUDA part; see `horon info`");
  memory_ = runtime->allocate_pinned(view.count, view.dtype);
  host_ = memory_.view();
  if (!reads) return;
  const auto stream = runtime->make_stream(view.device.index);
  if (!is_ready_) stream->follow_caller();
  stream->copy(host_.data, view.data, view.bytes());
  stream->synchronize();
}

void HostMirror::write_back(DeviceRuntime* runtime) const {
  if (host_.count == 0) return;
  const auto stream = runtime->make_stream(original_.device.index);
  if (!is_ready_) stream->follow_caller();  // it may still read what was there
  stream->copy(original_.data, host_.data, host_.bytes());
  stream->synchronize();
}

}  // namespace horon
