#include "horon/comm/engine/staging.h"

namespace horon {

StagedRequest::StagedRequest(const Request& original, DeviceRuntime* device)
    : host_(original), device_(device), is_ready_(original.ready != nullptr) {
  stage(host_);
  for (Request& item : host_.items) stage(item);
}

void StagedRequest::stage(Request& request) {
  const bool in_place =
      request.in.data == request.out.data && request.in.count == request.out.count;
  inputs_.emplace_back(request.in, true, device_, is_ready_);
  outputs_.push_back(in_place ? inputs_.back()
                              : HostMirror(request.out, false, device_, is_ready_));
  request.in = inputs_.back().view();
  request.out = outputs_.back().view();
}

void StagedRequest::write_back() const {
  for (const HostMirror& output : outputs_) output.write_back(device_);
}

}  // namespace horon
