#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// How people write flags: with - or _, and settings by other programs' names.
namespace horon::cli {

// The flag of the command that is meant, or the same word if it has none.
std::string spell_flag(const CLI::App& command, const std::string& flag);

// Writes all flags among the words as the command (the deepest one that they begin with) has them,
// and values in our units.
void spell_words(const CLI::App& app, std::vector<std::string>& words);

}  // namespace horon::cli
