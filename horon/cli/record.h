#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace horon::cli {

// Before minutes of measuring: a record that cannot be written is an error now.
void check_writable(const std::string& path);

// UsageError if writing `out` would overwrite `input`.
void check_not_input(const std::string& out, const std::string& input);

// For programs that measure others: UsageError unless the Python and the script are there.
void check_peers(const std::string& python, const std::string& script);

// IoError if it cannot be written whole.
void write_file(const std::string& path, const std::string& text);

// A benchmark's record: the machine, the version, the date, what was measured, and its summary.
nlohmann::json make_record(const nlohmann::json& results, const nlohmann::json& summary);

double median(std::vector<double> values);
// The median, and between which values it lies with about 95 %, whatever they are distributed like.
struct Spread {
  double low = 0;
  double middle = 0;
  double high = 0;
};
Spread spread_of(std::vector<double> values);

// Runs a program, its output beside ours; Error if it ends with another status than 0.
void run_program(const std::vector<std::string>& command);

void print_summary(const nlohmann::json& summary);

}  // namespace horon::cli
