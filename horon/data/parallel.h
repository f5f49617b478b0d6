#pragma once

#include <cstdint>
#include <functional>

#include "horon/data/order.h"

namespace horon {

// A thread's work on one block; keeps its memory between blocks.
using BlockBody = std::function<void(const Range& block)>;

// Processes a range in blocks of up to `block` numbers, on several threads including this one, each
// taking the next block; `make_body` is called once by each thread. The first exception ends it and
// is rethrown here.
void for_blocks(const Range& range, uint64_t block, int threads,
                const std::function<BlockBody()>& make_body);

}  // namespace horon
