#pragma once

#include "horon/device/stream.h"

namespace horon {

// A pinned host copy of a device buffer for the duration of one operation. Host buffers are used
// directly. One thread at a time.
class HostMirror {
 public:
  // `reads`: copy the device's contents to the host. `is_ready`: they can be read now; else after
  // what is in the device's default stream now. Throws UsageError for a device buffer without a
  // runtime; `runtime` may be null for host buffers.
  HostMirror(const BufferView& view, bool reads, DeviceRuntime* runtime, bool is_ready = false);
  const BufferView& view() const { return host_.count == 0 ? original_ : host_; }
  // Copies back to the device; nothing to do for host buffers.
  void write_back(DeviceRuntime* runtime) const;

 private:
  BufferView original_;
  bool is_ready_;
  BufferView host_ = {};
  OwnedBuffer memory_;
};

}  // namespace horon
