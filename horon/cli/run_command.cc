#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/part.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"
#include "horon/base/version.h"
#include "horon/cli/commands.h"
#include "horon/cli/run_flags.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/start/backends.h"
#include "horon/device/stream.h"
#include "horon/launch/job.h"
#include "horon/launch/mpi_run.h"

namespace horon::cli {
namespace {

namespace fs = std::filesystem;

struct RunFlags {
  int ranks = 0;
  std::string hosts;
  std::string hostfile;
  int ssh_port = 0;
  std::string identity;
  std::string ssh_config;
  bool accept_new = false;
  std::string remote_horon;
  std::string workdir;
  std::vector<std::string> exports;
  std::vector<std::string> interfaces;
  std::string output_folder;
  std::string timeline;
  bool autotune = false;
  std::string autotune_log;
  int port = 0;
  bool verbose = false;
  bool timestamps = false;
  bool check_build = false;
  bool no_bind = false;
  bool dry_run = false;
  bool mpi = false;
  bool gloo = false;
  bool flat = false;
  std::string mpi_args;
  std::string binding_args;
  std::string config_file;  // read before the flags are parsed
  std::vector<std::string> notes;
};

int count_gpus() {
  int count = 0;
  while (fs::exists(fmt::format("/dev/nvidia{}", count))) ++count;
  return count;
}

// Of any number: a container may have the third alone.
bool has_gpu() {
  const fs::directory_iterator devices("/dev");
  return std::any_of(begin(devices), end(devices), [](const fs::directory_entry& device) {
    const std::string name = device.path().filename().string();
    const size_t digit = name.find_first_of("0123456789");
    return name.substr(0, digit) == "nvidia" && digit != name.npos;
  });
}

std::vector<launch::Host> find_hosts(const RunFlags& flags) {
  require(flags.hosts.empty() || flags.hostfile.empty(), "use -H or --hostfile, not both");
  if (!flags.hosts.empty()) return launch::parse_hosts(flags.hosts);
  if (!flags.hostfile.empty())
    return launch::parse_hostfile(read_named_file("--hostfile", flags.hostfile), flags.hostfile);
  // This host: one slot per GPU or core, and more if more ranks were requested.
  const int gpus = count_gpus();
  const int slots = gpus > 0 ? gpus : static_cast<int>(usable_cores().size());
  return {{"localhost", flags.ranks > 0 ? flags.ranks : slots}};
}

// Settings of the command line and of a file, which other hosts need not have, reach the ranks
// through their environment.
launch::Environment settings_of(const RunFlags& flags, const Globals& globals) {
  launch::Environment variables;
  const JobSettings job_settings = globals.job_settings();
  for (const auto& [name, value] : job_settings.given()) {
    const std::string_view from = job_settings.origin(name);
    if (from == "file" || from == "command line") variables[job_setting_variable(name)] = value;
  }
  if (globals.config || process_env("HORON_CONFIG")) variables["HORON_CONFIG"] = "";
  const bool has_file = globals.flags.contains("autotune_file");
  if ((flags.autotune && !has_file) || !flags.autotune_log.empty()) {
    const std::string file =
        flags.autotune_log.empty() ? "horon-autotune.json" : flags.autotune_log;
    variables["HORON_AUTOTUNE_FILE"] = fs::absolute(file).string();
  }
  if (flags.gloo) variables["HORON_CROSS_BACKEND"] = "gloo";
  if (flags.flat) variables["HORON_BACKEND"] = "gloo";
  if (!flags.interfaces.empty())
    variables["HORON_INTERFACE"] = fmt::format("{}", fmt::join(flags.interfaces, ","));
  if (!flags.timeline.empty()) {
    variables["HORON_TIMELINE"] = fs::absolute(flags.timeline).string();
    variables["HOROVOD_TIMELINE"] = variables["HORON_TIMELINE"];
  }
  return variables;
}

launch::SshOptions ssh_options(const RunFlags& flags, const JobSettings& job_settings) {
  launch::SshOptions ssh;
  ssh.port = flags.ssh_port;
  ssh.identity_file = flags.identity;
  ssh.config_file = flags.ssh_config;
  ssh.accept_new_keys = flags.accept_new;
  ssh.remote_program =
      flags.remote_horon.empty() ? fs::read_symlink("/proc/self/exe").string() : flags.remote_horon;
  ssh.connect_timeout = job_settings.duration("start_timeout");
  return ssh;
}

// What the ranks will find; wrong settings are an error before there are any.
JobSettings settings_of_ranks(const launch::JobPlan& plan) {
  const auto lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = plan.environment.find(name);
    return found == plan.environment.end() ? process_env(name) : found->second;
  };
  return JobSettings::resolve({}, lookup, "");
}

// Errors that every rank would report, reported once.
void check_backend(const JobSettings& job_settings, const launch::JobPlan& plan, bool through_mpi) {
  const std::string& backend = job_settings.text("backend");
  const bool one_host = plan.hosts.size() == 1 || !job_settings.text("host_id").empty();
  require(backend != "self" || plan.placements.size() == 1,
          fmt::format("--backend self is for one rank, this job has {}", plan.placements.size()));
  require(backend != "local", "--backend local is for ranks that are threads; use shm");
  require(
      backend != "shm" || one_host,
      fmt::format("--backend shm is for one host, this job has {}; use hier", plan.hosts.size()));
  const bool crosses = backend == "hier" || (!one_host && (backend == "auto" || backend == "nccl"));
  const bool by_mpi = backend == "mpi" || (crosses && job_settings.text("cross_backend") == "mpi");
  require(through_mpi || !by_mpi,
          fmt::format("--{} mpi: mpirun must start the ranks; use `horon run --mpi`",
                      backend == "mpi" ? "backend" : "cross-backend"));
  if (backend != "nccl") {  // it has those of another one, too
    const std::string lacks = check_algorithms(backend, job_settings);
    require(lacks.empty(), lacks);
    return;  // names may take long to look up
  }
  const bool here = std::all_of(plan.hosts.begin(), plan.hosts.end(), [](const launch::Host& host) {
    return launch::is_local_host(host.name);
  });
  if (!here) return;
  const std::vector<std::string> folders = part_folders(job_settings.text("parts"));
  Part::open("nccl", folders);
  // Called only where the driver fails, because this process forks later.
  if (!has_gpu()) open_cuda_runtime(folders);
}

// Flags of `run` that mean a setting, which has a flag of its own: both may only say the same.
void check_twice_given(const RunFlags& flags, const JobSettings& job_settings) {
  struct Meant {
    const char* flag;
    const char* setting;
    std::string value;  // empty: not given
  };
  for (const auto& [flag, setting, value] :
       {Meant{"--timeline-filename", "timeline", flags.timeline},
        Meant{"--autotune-log-file", "autotune_file", flags.autotune_log},
        Meant{"--network-interfaces", "interface",
              fmt::format("{}", fmt::join(flags.interfaces, ","))},
        Meant{"--gloo", "cross_backend", flags.gloo ? "gloo" : ""},
        Meant{"--no-hierarchical-allreduce", "backend", flags.flat ? "gloo" : ""}})
    require(value.empty() || job_settings.origin(setting) != "command line" ||
                job_settings.text(setting) == value,
            fmt::format("{} and {}: both are {}; give one of the two", job_setting_flag(setting),
                        flag, setting));
}

void check_flags(const RunFlags& flags, const Globals& globals) {
  check_twice_given(flags, globals.job_settings());
  require(!globals.flags.contains("rendezvous"),
          "--rendezvous: `horon run` serves the store itself; --rendezvous-port chooses its port");
  require(!globals.flags.contains("secret_file"),
          "--secret-file: `horon run` makes a secret for each job");
  require(flags.mpi || flags.mpi_args.empty(), "--mpi-args requires --mpi");
  require(flags.mpi || flags.binding_args.empty(), "--binding-args requires --mpi");
  if (flags.dry_run) return;
  for (const auto& [flag, path] : {std::pair("--ssh-identity-file", flags.identity),
                                   std::pair("--ssh-config", flags.ssh_config)})
    require(path.empty() || fs::exists(path), fmt::format("{}: there is no file {}", flag, path));
}

// Variables that look like settings but are read by nothing.
std::vector<std::string> near_misses() {
  std::vector<std::string> known;
  for (const Setting& setting : setting_table())
    if (setting.scope == SettingScope::kJob) known.push_back(job_setting_variable(setting.name));
  std::vector<std::string> notes;
  for (const auto& [name, value] : launch::process_environment()) {
    const bool is_long = name.size() > std::string_view("HORON_RANKS").size();
    if (!name.starts_with("HORON_") || !is_long) continue;  // short names are near to many
    const std::string close = nearest(name, known);
    if (!close.empty() && close != name)
      notes.push_back(fmt::format("{} is not a setting; did you mean {}?", name, close));
  }
  return notes;
}

launch::JobPlan make_plan(const RunFlags& flags, const Globals& globals) {
  check_flags(flags, globals);
  const JobSettings job_settings = globals.job_settings();
  require(!globals.command.empty(),
          "no program to run: horon run -np 4 [flags] ./program [its arguments]");
  launch::JobPlan plan;
  plan.hosts = find_hosts(flags);
  int slots = 0;
  for (const launch::Host& host : plan.hosts) slots += host.slots;
  plan.placements = launch::assign_ranks(plan.hosts, flags.ranks > 0 ? flags.ranks : slots);
  plan.command = globals.command;
  plan.folder =
      flags.workdir.empty() ? fs::current_path().string() : fs::absolute(flags.workdir).string();
  plan.environment = settings_of(flags, globals);
  for (const std::string& entry : flags.exports) {
    const size_t equals = entry.find('=');
    launch::check_variable_name(entry.substr(0, equals));
    if (equals == std::string::npos) {
      require(process_env(entry).has_value(), fmt::format("-x {}: it is not set here", entry));
      plan.exports.push_back(entry);
    } else {
      plan.environment[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
  }
  plan.ssh = ssh_options(flags, job_settings);
  plan.start_timeout = job_settings.duration("start_timeout");
  plan.interface = flags.interfaces.empty() ? job_settings.text("interface")
                                            : fmt::format("{}", fmt::join(flags.interfaces, ","));
  plan.port = flags.port;
  plan.bind = !flags.no_bind;
  const bool colour = !process_env("NO_COLOR").has_value();
  plan.output = {static_cast<int>(plan.placements.size()), colour && isatty(STDOUT_FILENO) == 1,
                 colour && isatty(STDERR_FILENO) == 1, flags.timestamps, flags.output_folder};
  check_backend(settings_of_ranks(plan), plan, flags.mpi);
  plan.log_level =
      flags.verbose ? LogLevel::kInfo : parse_log_level(job_settings.text("log_level"));
  return plan;
}

// As horovodrun prints it.
void print_build(const JobSettings& job_settings) {
  const auto box = [](bool yes) { return yes ? "[X]" : "[ ]"; };
  std::cout << fmt::format(
      "Horon {}:\n\nAvailable controllers and operations:\n    [X] shared memory\n", kVersion);
  for (const PartStatus& part : probe_parts(part_folders(job_settings.text("parts"))))
    std::cout << fmt::format("    {} {} {}\n", box(part.loads), part.name, part.detail);
}

void add_host_flags(CLI::App& run, RunFlags& flags) {
  run.add_option("-n,--np,--num-proc", flags.ranks,
                 "number of ranks (-np works, too); default: all slots")
      ->check(CLI::Range(1, 1 << 20));
  run.add_option("-H,--hosts", flags.hosts,
                 "host:slots,host:slots,...; default: this host, one slot per GPU or core");
  run.add_option("--hostfile", flags.hostfile,
                 "file with one line 'host slots=n' or 'host:n' per host");
  run.add_option("-p,--ssh-port", flags.ssh_port, "port of sshd on the other hosts")
      ->check(CLI::Range(1, 65535));
  run.add_option("-i,--ssh-identity-file", flags.identity, "private key for ssh");
  run.add_option("--ssh-config", flags.ssh_config, "configuration file for ssh (its -F)");
  run.add_flag("--ssh-accept-new", flags.accept_new,
               "accept host keys that ssh does not know yet; changed keys are still refused");
  run.add_option("--remote-horon", flags.remote_horon,
                 "path of horon on the other hosts; default: the same path as here");
  run.add_option("--workdir", flags.workdir,
                 "working folder on every host; default: the current one");
  run.add_option(
         "-x", flags.exports,
         "NAME: variable to pass to the other hosts, in addition to PATH, LD_LIBRARY_PATH, "
         "PYTHONPATH, OMP_NUM_THREADS, HORON_* and HOROVOD_*; NAME=VALUE sets it on all hosts")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  run.add_option("--network-interfaces,--network-interface", flags.interfaces,
                 "interfaces or addresses to use between hosts; each host uses the first that it "
                 "has; default: those that ssh used")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  run.add_option("--rendezvous-port", flags.port,
                 "port of the store where ranks meet; default: any")
      ->check(CLI::Range(1, 65535));
}

void add_run_flags(CLI::App& run, RunFlags& flags) {
  run.add_option("--output-filename", flags.output_folder,
                 "also write each rank's output to DIR/rank.N/stdout and stderr");
  run.add_flag("--prefix-output-with-timestamp", flags.timestamps,
               "print the time before each line");
  run.add_flag("--verbose", flags.verbose, "print what is started where");
  run.add_flag("--dry-run", flags.dry_run,
               "print what would be started where, without starting it");
  run.add_flag("--check-build", flags.check_build,
               "print what this build and this host support (-cb works, too)");
  run.add_flag("--no-bind", flags.no_bind,
               "do not bind each rank to its own cores (default if ranks <= cores: bind)");
  run.add_option("--config-file", flags.config_file, "flags from a horovodrun configuration file");
  run.add_option("--timeline-filename", flags.timeline, "file for the ranks' timelines");
  run.add_flag("--mpi", flags.mpi, "start through mpirun, for programs that use MPI themselves");
  run.add_option("--mpi-args", flags.mpi_args, "additional arguments for mpirun");
  run.add_option("--binding-args", flags.binding_args, "arguments for mpirun that control binding");
  run.add_flag("--gloo", flags.gloo, "use Gloo between hosts, also under mpirun");
  run.add_flag(
      "--autotune", flags.autotune,
      "try bucket sizes and keep the best; the same as --autotune-file horon-autotune.json");
  run.add_option("--autotune-log-file", flags.autotune_log, "the same as --autotune-file");
  run.add_flag("--no-hierarchical-allreduce", flags.flat,
               "reduce in one level over Gloo; the same as --backend gloo");
}

int execute(RunFlags& flags, const Globals& globals) {
  if (flags.check_build) {
    print_build(globals.job_settings());
    return 0;
  }
  const launch::JobPlan plan = make_plan(flags, globals);
  for (const std::string& note : near_misses()) flags.notes.push_back(note);
  for (const std::string& note : flags.notes) std::cerr << "horon run: " << note << "\n";
  if (flags.mpi) {
    launch::MpiStart start;
    start.program = fs::read_symlink("/proc/self/exe").string();
    start.extra = split(flags.mpi_args, ' ');
    for (std::string& word : split(flags.binding_args, ' ')) start.extra.push_back(std::move(word));
    start.binds = flags.binding_args.empty();
    if (flags.dry_run) {
      std::cout << launch::describe_mpi(plan, start);
      return 0;
    }
    return launch::run_mpi_job(plan, start);
  }
  if (flags.dry_run) {
    std::cout << launch::describe_plan(plan);
    return 0;
  }
  return launch::run_job(plan);
}

}  // namespace

void add_run_command(CLI::App& app, Globals& globals) {
  auto* run =
      app.add_subcommand("run",
                         "Starts a program as several ranks on this and other hosts, and "
                         "supervises them:\n  horon run -np 4 [flags] ./program [its arguments]");
  run->footer(
      "Examples:\n  horon run -np 4 ./program --its flags        four ranks on this host\n  horon "
      "run -np 4 -H a:2,b:2 python train.py   two on each host, over ssh\n  horon run -np 4 -H "
      "a:2,b:2 --dry-run ./program\nThe environment of each rank contains HORON_RANK, HORON_SIZE, "
      "HORON_LOCAL_RANK, ... (and\nHOROVOD_RANK, ...). The exit code is that of the rank that "
      "failed (128 + n if signal n ended it),\n15 if the program or a host could not be started, "
      "75 after Ctrl-C or SIGTERM.");
  run->set_version_flag("-v,--version", fmt::format("horon {}", kVersion));
  auto flags = std::make_shared<RunFlags>();
  add_host_flags(*run, *flags);
  add_run_flags(*run, *flags);
  add_horovod_flags(*run, flags->notes);
  add_job_setting_flags(*run, globals);
  for (const char* name : {"--hosts", "--hostfile", "--ssh-identity-file", "--ssh-config",
                           "--remote-horon", "--workdir", "-x", "--network-interfaces",
                           "--output-filename", "--timeline-filename", "--autotune-log-file"})
    run->get_option(name)->check(not_empty, "");
  for (CLI::Option* option : run->get_options()) {
    if (option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  run->callback([flags, &globals] { globals.exit_code = execute(*flags, globals); });
}

}  // namespace horon::cli
