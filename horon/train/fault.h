#pragma once

#include <cstdint>

// Faults of a rank at a chosen step, for tests: HORON_FAILPOINT names one (base/failpoint.h).
namespace horon::train {

// "nan:RANK:STEP": that rank's pictures of that step are no numbers.
bool is_poisoned(int rank, uint64_t step);
// "flip:RANK:STEP": a bit of that rank's weights turns over after that step.
bool is_flipped(int rank, uint64_t step);

}  // namespace horon::train
