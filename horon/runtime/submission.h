#pragma once

#include <cstdint>
#include <optional>

#include "horon/base/time.h"
#include "horon/comm/request.h"
#include "horon/comm/work.h"
#include "horon/runtime/tensor.h"

namespace horon {

// A named operation that has not ended. A value: the scheduler owns it while it is pending, the
// driving thread owns it while it runs. The buffers in `request` belong to the caller and stay
// valid until `work` ends.
struct Submission {
  TensorSpec spec;
  Request request;
  Work work;
  Clock::time_point submitted;
  uint64_t number = 0;                // grows with each submission to one lane
  std::optional<uint64_t> step = {};  // of the optimizer, for the codec
  bool told = false;                  // was in a report
  int bucket = -1;                    // bucket that counts it; -1: does not follow the plan
};

}  // namespace horon
