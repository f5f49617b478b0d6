#pragma once

#include <cstdint>
#include <functional>

#include "horon/data/order.h"

namespace horon {

// A thread's work on a run of numbers, with memory that it keeps between them.
using BlockBody = std::function<void(const Range& block)>;

// All blocks of up to `block` numbers of a range, by several threads, this one among them, each
// taking the next one; `make_body` is called once by each thread. The first exception ends it, and
// is thrown here.
void for_blocks(const Range& range, uint64_t block, int threads,
                const std::function<BlockBody()>& make_body);

}  // namespace horon
