#pragma once

#include <cstdint>

// Faults at chosen places, for tests: HORON_FAILPOINT names one.
namespace horon::train {

// "NAME" or "NAME:N": the process ends (SIGKILL) when it comes to NAME for the N-th time.
void failpoint(const char* name);
// "nan:RANK:STEP": that rank's pictures of that step are no numbers.
bool is_poisoned(int rank, uint64_t step);
// "flip:RANK:STEP": a bit of that rank's weights turns over after that step.
bool is_flipped(int rank, uint64_t step);

}  // namespace horon::train
