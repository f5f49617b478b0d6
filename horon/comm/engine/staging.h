#pragma once

#include <vector>

#include "horon/comm/request.h"
#include "horon/device/mirror.h"

namespace horon {

// A copy of a request whose device memory, including that of its items, is mirrored in pinned host
// memory.
class StagedRequest {
 public:
  StagedRequest(const Request& original, DeviceRuntime* device);
  const Request& host() const { return host_; }
  // Copies the results back to the device.
  void write_back() const;

 private:
  void stage(Request& request);

  Request host_;
  DeviceRuntime* device_;
  bool is_ready_;
  std::vector<HostMirror> inputs_;
  std::vector<HostMirror> outputs_;
};

}  // namespace horon
