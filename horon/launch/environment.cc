#include "horon/launch/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "horon/base/error.h"

namespace horon::launch {
namespace {

// Set for each rank by its agent; a launcher that is itself a rank must not pass its own on.
constexpr std::array<std::string_view, 10> kRankVariables = {
    "RANK",       "SIZE",     "LOCAL_RANK", "LOCAL_SIZE",  "CROSS_RANK",
    "CROSS_SIZE", "HOSTNAME", "AGENT_ID",   "SECRET_FILE", "TERMINAL"};

bool is_rank_variable(std::string_view name) {
  return std::any_of(kRankVariables.begin(), kRankVariables.end(), [&](std::string_view tail) {
    return name == "HORON_" + std::string(tail) || name == "HOROVOD_" + std::string(tail);
  });
}

}  // namespace

Environment rank_environment(const RankPlacement& placement, const std::string& host, int cores) {
  Environment variables;
  const std::array<std::pair<const char*, int>, 6> numbers = {
      {{"RANK", placement.rank},
       {"SIZE", placement.size},
       {"LOCAL_RANK", placement.local_rank},
       {"LOCAL_SIZE", placement.local_size},
       {"CROSS_RANK", placement.cross_rank},
       {"CROSS_SIZE", placement.cross_size}}};
  for (const char* prefix : {"HORON_", "HOROVOD_"}) {
    for (const auto& [name, value] : numbers)
      variables[std::string(prefix) + name] = std::to_string(value);
    variables[std::string(prefix) + "HOSTNAME"] = host;
  }
  variables["OMP_NUM_THREADS"] = std::to_string(std::max(1, cores / placement.local_size));
  return variables;
}

bool travels(const std::string& name, const std::vector<std::string>& extra) {
  if (std::find(extra.begin(), extra.end(), name) != extra.end()) return true;
  if (is_rank_variable(name)) return false;
  return name == "PATH" || name == "LD_LIBRARY_PATH" || name == "PYTHONPATH" ||
         name == "OMP_NUM_THREADS" || name.starts_with("HORON_") || name.starts_with("HOROVOD_");
}

std::vector<std::string> flatten(const Environment& environment) {
  std::vector<std::string> pairs;
  for (const auto& [name, value] : environment) pairs.push_back(name + "=" + value);
  return pairs;
}

Environment parse_environment(const std::vector<std::string>& pairs) {
  Environment environment;
  for (const std::string& pair : pairs) {
    const size_t equals = pair.find('=');
    if (equals != std::string::npos && equals > 0)
      environment[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return environment;
}

Environment process_environment() {
  std::vector<std::string> pairs;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) pairs.emplace_back(*at);
  return parse_environment(pairs);
}

void check_variable_name(const std::string& name) {
  const bool good = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return (c < 0x80 && std::isalnum(c) != 0) || c == '_';
                    });
  require(good, fmt::format("-x: '{}' is not the name of a variable", name));
}

}  // namespace horon::launch
