#include "horon/cli/record.h"

#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/time.h"
#include "horon/base/version.h"
#include "horon/cli/machine.h"

namespace horon::cli {

void check_writable(const std::string& path) {
  if (!path.empty() && !std::ofstream(path, std::ios::app)) throw io_error("write " + path);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw io_error("write " + path);
}

nlohmann::json make_record(const nlohmann::json& results, const nlohmann::json& summary) {
  const Machine machine = this_machine();
  return {{"machine",
           {{"cpu", machine.cpu},
            {"cores", machine.cores},
            {"last_level_cache", machine.cache},
            {"memory", machine.memory},
            {"kernel", machine.kernel}}},
          {"version", kVersion},
          {"date", utc_now()},
          {"results", results},
          {"summary", summary}};
}

void print_summary(const nlohmann::json& summary) {
  for (const auto& [key, value] : summary.items())
    std::cout << fmt::format("{:<28} {:.3f}\n", key, value.get<double>());
}

}  // namespace horon::cli
