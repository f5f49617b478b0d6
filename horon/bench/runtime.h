#pragma once

#include "horon/bench/ranks.h"
#include "horon/bench/record.h"

namespace horon::bench {

// Measures named operations and the gradients of ResNet-50 in buckets, on 2 and 8 ranks of this
// host, compared with one plain all-reduce of the same size.
Results run_runtime(bool quick);

// Runs one rank: `horon bench runtime-rank`.
void run_runtime_rank(const RankOptions& options);

}  // namespace horon::bench
