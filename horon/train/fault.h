#pragma once

#include <cstdint>

// Injects faults at a chosen rank and step, for tests: HORON_FAILPOINT names one
// (base/failpoint.h).
namespace horon::train {

// "nan:RANK:STEP": that rank's images become NaN in that step.
bool is_poisoned(int rank, uint64_t step);
// "flip:RANK:STEP": flips a bit of that rank's weights after that step.
bool is_flipped(int rank, uint64_t step);

}  // namespace horon::train
