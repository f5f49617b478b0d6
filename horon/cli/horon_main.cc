// The program: parse, call, print.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/version.h"
#include "horon/cli/commands.h"
#include "horon/cli/run_flags.h"
#include "horon/cli/spelling.h"

namespace horon::cli {
namespace {

int fail(const std::string& what, ExitCode code) {
  std::cerr << fmt::format("horon: {}\n", what);  // at once: other ranks may write there, too
  return static_cast<int>(code);
}

// CLI11 would only report a missing command. Returns the words of the command: "bench launch".
std::string check_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::string flag = arguments.front().substr(0, arguments.front().find('='));
  require(!flag.starts_with('-') || app.get_option_no_throw(flag) != nullptr,
          fmt::format("unknown flag '{}'; try `horon --help`", flag));
  const CLI::App* at = &app;
  std::string words;
  for (size_t i = 0;; ++i) {
    const std::string word = i < arguments.size() ? arguments[i] : "";
    std::vector<std::string> names;
    for (const CLI::App* command : at->get_subcommands([](const CLI::App*) { return true; })) {
      if (!command->get_group().empty() || command->get_name() == word)  // others are ours
        names.push_back(command->get_name());
    }
    if (names.empty() || word.starts_with('-')) return words;
    require(i < arguments.size(),
            fmt::format("{}: a command is missing; there are: {}", words, fmt::join(names, ", ")));
    words += (words.empty() ? "" : " ") + word;
    if (std::find(names.begin(), names.end(), word) == names.end()) {
      const std::string close = nearest(word, names);
      throw UsageError(fmt::format("unknown command '{}'{}; there are: {}", words,
                                   close.empty() ? "" : fmt::format(", did you mean '{}'?", close),
                                   fmt::join(names, ", ")));
    }
    at = at->get_subcommand(word);
  }
}

int run(int argc, char** argv) {
  CLI::App app("Trains deep networks on many processes, devices and hosts.", "horon");
  app.set_version_flag("--version", fmt::format("horon {}", kVersion));
  app.require_subcommand(1);
  app.footer(
      exit_code_help() +
      "\nSettings may also come from HORON_* variables or a file: see `horon info --knobs`.");
  Globals globals;
  add_info_command(app, globals);
  add_demo_command(app, globals);
  add_bench_command(app, globals);
  add_run_command(app, globals);
  add_launch_commands(app, globals);
  add_trace_command(app);
  add_train_commands(app, globals);
  add_plot_command(app);
  add_data_command(app, globals);
  add_file_commands(app, globals);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string_view own(argv[0]);
  if (own.substr(own.rfind('/') + 1) == "horonrun") arguments.insert(arguments.begin(), "run");
  if (arguments.empty()) {
    std::cout << app.help();
    return static_cast<int>(ExitCode::kUsage);
  }
  const std::string command = check_command(app, arguments);
  try {
    const std::string name = arguments.front();
    if (name == "run" || name == "mpi-rank") {  // the program's own flags are not ours to read
      SplitArguments split =
          split_run_arguments(*app.get_subcommand(name), {arguments.begin() + 1, arguments.end()});
      globals.command = std::move(split.command);
      arguments.resize(1);
      arguments.insert(arguments.end(), split.flags.begin(), split.flags.end());
    } else {
      spell_words(app, arguments);
    }
    std::reverse(arguments.begin(), arguments.end());  // CLI11 expects reverse order
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    // 0: --help or --version, printed by CLI11.
    if (error.get_exit_code() == 0) return app.exit(error);
    const std::string help = command.empty() ? "horon --help" : "horon " + command + " --help";
    return fail(fmt::format("{}; try `{}`", error.what(), help), ExitCode::kUsage);
  }
  return globals.exit_code;
}

}  // namespace
}  // namespace horon::cli

int main(int argc, char** argv) {
  try {
    return horon::cli::run(argc, argv);
  } catch (const horon::Error& error) {
    return horon::cli::fail(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    return horon::cli::fail(error.what(), horon::ExitCode::kFailure);
  }
}
