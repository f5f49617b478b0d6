#pragma once

#include "horon/bench/ranks.h"

namespace horon::bench {

// Runs the plan (all_reduce.h) found in the store; rank 0 stores the points as JSON.
void run_all_reduce_rank(const RankOptions& options);

}  // namespace horon::bench
