#pragma once

#include "horon/bench/ranks.h"

namespace horon::bench {

// Runs the plan (all_reduce.h) that is in the store or in the options; rank 0 stores or prints the
// points as JSON.
void run_all_reduce_rank(const RankOptions& options);

}  // namespace horon::bench
