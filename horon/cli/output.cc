#include "horon/cli/output.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"

namespace horon::cli {

void check_writable(const std::string& path) {
  if (!path.empty() && !std::ofstream(path, std::ios::app)) throw io_error("write " + path);
}

void check_not_input(const std::string& out, const std::string& input) {
  std::error_code absent;
  require(!std::filesystem::equivalent(out, input, absent),
          fmt::format("{} is read: choose another file to write", out));
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw io_error("write " + path);
}

void print_summary(const nlohmann::json& summary) {
  for (const auto& [key, value] : summary.items())
    std::cout << fmt::format("{:<28} {:.3f}\n", key, value.get<double>());
}

}  // namespace horon::cli
