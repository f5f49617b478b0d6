#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

// Files that commands write.
namespace horon::cli {

// Before minutes of measuring: IoError if it cannot be written. An empty path is none.
void check_writable(const std::string& path);

// UsageError if writing `out` would overwrite `input`.
void check_not_input(const std::string& out, const std::string& input);

// IoError if it cannot be written whole.
void write_file(const std::string& path, const std::string& text);

// Numbers by name, one a line.
void print_summary(const nlohmann::json& summary);

}  // namespace horon::cli
