#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace horon::bench {

// The results of a benchmark: all measurements, and the few numbers that summarise them.
struct Results {
  nlohmann::json results = nlohmann::json::object();
  nlohmann::json summary = nlohmann::json::object();
};
// Receives lines for users during the measurement.
using Say = std::function<void(const std::string& line)>;

// For benchmarks with peers: UsageError unless the Python and the script exist.
void check_peers(const std::string& python, const std::string& script);

// Makes a benchmark's record: host, version, date, results and summary.
nlohmann::json make_record(const Results& measured);

double median(std::vector<double> values);
// The median and its 95 % confidence interval, for any distribution.
struct Spread {
  double low = 0;
  double middle = 0;
  double high = 0;
};
Spread spread_of(std::vector<double> values);

// Runs a program with our stdout and stderr; Error if its exit status is not 0.
void run_program(const std::vector<std::string>& command);

}  // namespace horon::bench
