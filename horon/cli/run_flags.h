#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

// Support for horovodrun's flags, so that scripts that call it keep working.
namespace horon::cli {

// The arguments of `run` in the form that CLI11 reads, and the program with its arguments.
struct SplitArguments {
  std::vector<std::string> flags;
  std::vector<std::string> command;
};

// Splits at the first word that is neither a flag of `run` nor its value (or after "--"), and
// rewrites flags for CLI11: -np=2 as --np 2. Flags from --config-file come first, so that the
// command line overrides them.
SplitArguments split_run_arguments(CLI::App& run, const std::vector<std::string>& arguments);

// The contents of a small file that a flag names; UsageError if it cannot be read.
std::string read_named_file(std::string_view flag, const std::string& path);

// The contents of a horovodrun configuration file (YAML: sections of `name: value`), as flags of
// `run`. UsageError with the line for an unknown name or an invalid value.
std::vector<std::string> flags_of_config(CLI::App& run, std::string_view text,
                                         std::string_view path);

// A CLI11 check: a number from low to high (not NaN or infinity).
std::function<std::string(const std::string&)> number_from(double low, double high);
// A CLI11 check: not empty, as an unset variable in a script would be.
std::string not_empty(const std::string& text);

// Adds horovodrun's flags without effect here; each given one adds an explanation to `notes`. Flags
// that must not be ignored cause a UsageError.
void add_horovod_flags(CLI::App& run, std::vector<std::string>& notes);

}  // namespace horon::cli
