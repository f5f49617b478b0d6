#pragma once

#include <cstdint>

namespace horon::testing_support {

// How often this thread has called `new` so far. The program is linked with allocations.cc, which
// counts in place of the library's; under a sanitizer nothing is counted.
uint64_t allocations();

}  // namespace horon::testing_support
