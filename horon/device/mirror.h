#pragma once

#include "horon/device/stream.h"

namespace horon {

// A pinned host copy of a device buffer for the time of one operation. Host buffers pass through.
class HostMirror {
 public:
  // `reads`: the device's contents are wanted. Throws UsageError if a device buffer comes without a
  // runtime; `runtime` may be null otherwise.
  HostMirror(const BufferView& view, bool reads, DeviceRuntime* runtime);
  const BufferView& view() const { return host_.count == 0 ? original_ : host_; }
  // Back to the device.
  void write_back(DeviceRuntime* runtime) const;

 private:
  BufferView original_;
  BufferView host_ = {};
  OwnedBuffer memory_;
};

}  // namespace horon
