#include "horon/cli/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"

namespace horon::cli {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return std::string(trim(std::string_view(line).substr(colon + 1)));
    }
  }
  return "unknown CPU";
}

uint64_t last_level_cache() {
  uint64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    std::string size;
    if (!(file >> size)) break;
    try {
      largest = std::max(largest, parse_bytes(size));
    } catch (const UsageError&) {  // a kernel that writes it in another way: leave it out
    }
  }
  return largest;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  machine.cores = static_cast<int>(usable_cores().size());
  machine.cache_bytes = last_level_cache();
  machine.cache = format_bytes(machine.cache_bytes);
  machine.memory = format_bytes(static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  utsname name{};
  if (uname(&name) == 0) machine.kernel = name.release;
  return machine;
}

}  // namespace horon::cli
