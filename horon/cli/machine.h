#pragma once

#include <cstdint>
#include <string>

namespace horon::cli {

// What a benchmark's record says about where it ran.
struct Machine {
  std::string cpu;
  int cores = 0;
  uint64_t cache_bytes = 0;  // last level
  std::string cache;
  std::string memory;
  std::string kernel;
};

Machine this_machine();

}  // namespace horon::cli
