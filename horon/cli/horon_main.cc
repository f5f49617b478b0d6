// The program: parse, call, print.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/version.h"
#include "horon/cli/commands.h"

namespace horon::cli {
namespace {

int fail(const std::string& what, ExitCode code) {
  std::cerr << "horon: " << what << "\n";
  return static_cast<int>(code);
}

// CLI11 would only say that a command is missing.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return;
  const std::string close = nearest(argv[1], names);
  throw UsageError(fmt::format("unknown command '{}'{}; there are: {}", argv[1],
                               close.empty() ? "" : fmt::format(", did you mean '{}'?", close),
                               fmt::join(names, ", ")));
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
  if (argc == 1) {
    std::cout << app.help();
    return static_cast<int>(ExitCode::kUsage);
  }
  check_command(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // 0: --help or --version, printed by CLI11.
    if (error.get_exit_code() == 0) return app.exit(error);
    return fail(fmt::format("{}; try `horon --help`", error.what()), ExitCode::kUsage);
  }
  return 0;
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
