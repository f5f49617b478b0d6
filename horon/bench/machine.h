#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace horon::bench {

// Describes the host in benchmark records. A value.
struct Machine {
  std::string cpu;   // model name from the system
  std::string kind;  // short and stable: a record replaces earlier ones of the same kind
  int cores = 0;
  uint64_t cache_bytes = 0;  // of the last level
  std::string cache;
  std::vector<std::string> caches;  // data caches, by level: "48 KB", "2 MB", "260 MB"
  std::string memory;
  std::string kernel;
};

Machine this_machine();

// One line: model, kind, cores, caches, memory.
std::string describe(const Machine& machine);

// "intel-6-avx512", "amd-25-avx2": vendor, family and widest instruction set, from the text of
// /proc/cpuinfo. Models are omitted: virtual machines hide them.
std::string cpu_kind(const std::string& cpuinfo, const std::string& kernels);

}  // namespace horon::bench
