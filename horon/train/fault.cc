#include "horon/train/fault.h"

#include <fmt/format.h>

#include "horon/base/failpoint.h"

namespace horon::train {

bool is_poisoned(int rank, uint64_t step) {
  return !wanted_fault().empty() && wanted_fault() == fmt::format("nan:{}:{}", rank, step);
}

bool is_flipped(int rank, uint64_t step) {
  return !wanted_fault().empty() && wanted_fault() == fmt::format("flip:{}:{}", rank, step);
}

}  // namespace horon::train
