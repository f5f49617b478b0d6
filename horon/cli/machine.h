#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace horon::cli {

// What a benchmark's record says about where it ran.
struct Machine {
  std::string cpu;   // the model as the system names it
  std::string kind;  // short and stable: records of machines of one kind replace each other
  int cores = 0;
  uint64_t cache_bytes = 0;  // last level
  std::string cache;
  std::vector<std::string> caches;  // by level, data: "48 KB", "2 MB", "260 MB"
  std::string memory;
  std::string kernel;
};

Machine this_machine();

// One line: model, kind, cores, caches, memory.
std::string describe(const Machine& machine);

// "intel-6-avx512", "amd-25-avx2": vendor, family and the widest kernels, from the text of
// /proc/cpuinfo. Models are left out: virtual machines hide them.
std::string cpu_kind(const std::string& cpuinfo, const std::string& kernels);

}  // namespace horon::cli
