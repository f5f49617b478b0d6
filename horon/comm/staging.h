#pragma once

#include <vector>

#include "horon/comm/request.h"
#include "horon/device/mirror.h"

namespace horon {

// A request with its device memory, and that of its items, mirrored in pinned host memory.
class StagedRequest {
 public:
  StagedRequest(const Request& original, DeviceRuntime* device);
  const Request& host() const { return host_; }
  // The results to where they belong.
  void write_back() const;

 private:
  void stage(Request& request);

  Request host_;
  DeviceRuntime* device_;
  std::vector<HostMirror> inputs_;
  std::vector<HostMirror> outputs_;
};

}  // namespace horon
