#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// Accepts flags spelled with - or _.
namespace horon::cli {

// The command's spelling of the flag, or the same word if it has no such flag.
std::string spell_flag(const CLI::App& command, const std::string& flag);

// Rewrites all flags in `words` to the spelling of the command (the deepest one named at the
// beginning).
void spell_words(const CLI::App& app, std::vector<std::string>& words);

}  // namespace horon::cli
