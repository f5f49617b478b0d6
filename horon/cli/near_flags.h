#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon::cli {

// Makes unknown flags and subcommands of a command errors that name the nearest known one. Call it
// after all flags and subcommands were added.
inline void name_near_flags(CLI::App& command) {
  const auto below = command.get_subcommands([](const CLI::App*) { return true; });
  for (CLI::App* one : below) name_near_flags(*one);
  command.require_subcommand(0, below.empty() ? 0 : 1);  // checked here, with better words
  command.parse_complete_callback([&command, below] {
    std::vector<std::string> flags;
    for (const CLI::Option* option : command.get_options())
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    std::vector<std::string> commands;
    for (const CLI::App* one : below) commands.push_back(one->get_name());
    std::string path = command.get_name();
    for (const CLI::App* at = command.get_parent(); at != nullptr; at = at->get_parent())
      path = at->get_name() + " " + path;

    const std::vector<std::string> unknown = command.remaining();
    if (unknown.empty()) {
      require(below.empty() || !command.get_subcommands().empty(),
              fmt::format("{}: a subcommand is missing; use one of {}", command.get_name(),
                          fmt::join(commands, ", ")));
      return;
    }
    const std::string word = unknown.front().substr(0, unknown.front().find('='));
    const bool is_flag = word.starts_with('-');
    const std::string close = nearest(word, is_flag ? flags : commands);
    throw UsageError(
        fmt::format("{} '{}'{}; try `{} --help`",
                    is_flag         ? "unknown flag"
                    : below.empty() ? "unexpected argument"
                                    : "unknown command",
                    word, close.empty() ? "" : fmt::format(", did you mean '{}'?", close), path));
  });
}

}  // namespace horon::cli
