#include "horon/bench/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "horon/base/error.h"
#include "horon/base/time.h"
#include "horon/base/version.h"
#include "horon/bench/machine.h"

namespace horon::bench {

void check_peers(const std::string& python, const std::string& script) {
  if (python.empty()) return;
  require(access(python.c_str(), X_OK) == 0, fmt::format("--peers {}: no such program", python));
  require(access(script.c_str(), R_OK) == 0, fmt::format("--peer-script {}: no such file", script));
}

nlohmann::json make_record(const Results& measured) {
  const Machine machine = this_machine();
  return {{"machine",
           {{"cpu", machine.cpu},
            {"kind", machine.kind},
            {"cores", machine.cores},
            {"caches", machine.caches},
            {"last_level_cache", machine.cache},
            {"memory", machine.memory},
            {"kernel", machine.kernel}}},
          {"version", kVersion},
          {"date", utc_now()},
          {"results", measured.results},
          {"summary", measured.summary}};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The number of values below the median is binomial: n/2, give or take sqrt(n).
Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const auto cut = static_cast<size_t>(std::max(0.0, n / 2 - 0.98 * std::sqrt(n)));
  return {values[cut], values[values.size() / 2], values[values.size() - 1 - cut]};
}

void run_program(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& one : command) arguments.push_back(const_cast<char*>(one.c_str()));
  arguments.push_back(nullptr);
  pid_t process = 0;
  const int refused =
      posix_spawnp(&process, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (refused != 0) throw Error(fmt::format("{}: {}", command.front(), std::strerror(refused)));
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) throw Error(fmt::format("{} failed", fmt::join(command, " ")));
}

}  // namespace horon::bench
