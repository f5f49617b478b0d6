#pragma once

#include "horon/device/stream.h"

namespace horon {

// A pinned host copy of a device buffer for the duration of one operation; a host buffer is used
// itself. Blocks while it copies. One thread at a time.
//
//   const HostMirror host(data, true, runtime);
//   compute(host.view());
//   host.write_back(runtime);
class HostMirror {
 public:
  // `reads`: copy the device's contents to the host. `is_ready`: they can be read now; otherwise
  // the copy waits for the work that is now in the device's default stream. `runtime` may be null
  // for host buffers; UsageError for device buffers.
  HostMirror(const BufferView& view, bool reads, DeviceRuntime* runtime, bool is_ready = false);
  const BufferView& view() const { return host_.count == 0 ? original_ : host_; }
  // Copies the host's contents to the device; does nothing for host buffers.
  void write_back(DeviceRuntime* runtime) const;

 private:
  BufferView original_;
  bool is_ready_;
  BufferView host_ = {};
  OwnedBuffer memory_;
};

}  // namespace horon
