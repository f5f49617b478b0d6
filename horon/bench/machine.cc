#include "horon/bench/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"
#include "horon/comm/arithmetic/reduce.h"

namespace horon::bench {
namespace {

// The first value of a key in the text of /proc/cpuinfo; empty if there is none.
std::string value_of(const std::string& cpuinfo, std::string_view key) {
  std::istringstream text(cpuinfo);
  std::string line;
  while (std::getline(text, line)) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && trim(std::string_view(line).substr(0, colon)) == key)
      return std::string(trim(std::string_view(line).substr(colon + 1)));
  }
  return "";
}

std::string read_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Bytes of the data caches of the first core, from the nearest on.
std::vector<uint64_t> data_caches() {
  std::vector<uint64_t> sizes;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const std::string size = read_word(folder + "size");
    if (size.empty()) break;
    if (read_word(folder + "type") == "Instruction") continue;
    try {
      sizes.push_back(parse_bytes(size));
    } catch (const UsageError&) {  // the kernel uses another format: omit it
    }
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

}  // namespace

Machine this_machine() {
  std::ostringstream cpuinfo;
  cpuinfo << std::ifstream("/proc/cpuinfo").rdbuf();
  const std::string model = value_of(cpuinfo.str(), "model name");
  Machine machine;
  machine.cpu = model.empty() ? "unknown CPU" : model;
  machine.kind = cpu_kind(cpuinfo.str(), std::string(kernel_name()));
  machine.cores = static_cast<int>(usable_cores().size());
  for (uint64_t bytes : data_caches()) {
    machine.caches.push_back(format_bytes(bytes));
    machine.cache_bytes = bytes;
  }
  machine.cache = format_bytes(machine.cache_bytes);
  machine.memory = format_bytes(static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  utsname name{};
  if (uname(&name) == 0) machine.kernel = name.release;
  return machine;
}

std::string describe(const Machine& machine) {
  return fmt::format("{} ({}), {} cores, caches {}, {} memory", machine.cpu, machine.kind,
                     machine.cores, fmt::join(machine.caches, " + "), machine.memory);
}

std::string cpu_kind(const std::string& cpuinfo, const std::string& kernels) {
  std::string vendor = value_of(cpuinfo, "vendor_id");
  if (vendor == "GenuineIntel") vendor = "intel";
  if (vendor == "AuthenticAMD") vendor = "amd";
  std::erase_if(vendor, [](unsigned char c) { return std::isalnum(c) == 0; });
  const std::string family = value_of(cpuinfo, "cpu family");
  return fmt::format("{}-{}-{}", vendor.empty() ? "cpu" : vendor, family.empty() ? "0" : family,
                     kernels);
}

}  // namespace horon::bench
