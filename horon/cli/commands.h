#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "horon/base/job_settings.h"

// One function per subcommand, which adds it to the program; the command runs after parsing. Errors
// are exceptions, which main turns into one line and an exit code.
namespace horon::cli {

using GivenFlags = std::map<std::string, std::string>;  // settings by name

// The settings given on the command line, shared by all subcommands.
struct Globals {
  GivenFlags flags;
  std::optional<std::string> config;
  int exit_code = 0;                 // of a command that ended without an exception
  std::vector<std::string> command;  // the program that `run` or `mpi-rank` starts
  JobSettings job_settings() const;
  // Exports the checked command-line settings to the environment of ranks that we start.
  void export_to_ranks() const;
};

void add_bench_command(CLI::App& app, Globals& globals);
void add_demo_command(CLI::App& app, Globals& globals);
void add_info_command(CLI::App& app, Globals& globals);
void add_trace_command(CLI::App& app);
void add_file_commands(CLI::App& app, Globals& globals);
void add_data_command(CLI::App& app, Globals& globals);
// `train` and `evaluate`.
void add_train_commands(CLI::App& app, Globals& globals);
void add_plot_command(CLI::App& app);
void add_run_command(CLI::App& app, Globals& globals);
// `agent`, `secret` and other small launcher commands.
void add_launch_commands(CLI::App& app, Globals& globals);

// Adds the job's settings as flags.
void add_job_setting_flags(CLI::App& app, Globals& globals);
// Adds every setting of the table as a flag.
void add_all_settings(CLI::App& app, GivenFlags& flags);

}  // namespace horon::cli
