#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

// horovodrun's vocabulary, so that scripts which call it keep working.
namespace horon::cli {

// The arguments of `run` as CLI11 can read them, and the program with its own.
struct RunArguments {
  std::vector<std::string> flags;
  std::vector<std::string> command;
};

// Splits at the first word that is neither a flag of `run` nor the value of one (or after "--"),
// and spells flags as CLI11 wants them: -np=2 as --np 2. Flags of a --config-file come first, so
// that the command line wins.
RunArguments split_run_arguments(CLI::App& run, const std::vector<std::string>& arguments);

// The whole of a small file that a flag names; UsageError if it cannot be read.
std::string read_named_file(std::string_view flag, const std::string& path);

// What a horovodrun configuration file (YAML: sections of `name: value`) says, as flags of `run`.
// UsageError with the line for an unknown name or a bad value.
std::vector<std::string> flags_of_config(CLI::App& run, std::string_view text,
                                         std::string_view path);

// For CLI11: a number from low to high, and nothing else (NaN and infinity are no numbers here).
std::function<std::string(const std::string&)> number_from(double low, double high);
// Not what is left of an unset variable of a script.
std::string not_empty(const std::string& text);

// Adds the flags of horovodrun that need nothing here: each given one adds a line to `notes` that
// says why. Those that would be wrong to ignore end in a UsageError.
void add_horovod_flags(CLI::App& run, std::vector<std::string>& notes);

}  // namespace horon::cli
