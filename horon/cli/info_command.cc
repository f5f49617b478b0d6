#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/version.h"
#include "horon/bench/machine.h"
#include "horon/cli/commands.h"
#include "horon/comm/arithmetic/reduce.h"
#include "horon/comm/bootstrap.h"
#include "horon/comm/start/backends.h"
#include "horon/device/stream.h"
#include "horon/train/open.h"

namespace horon::cli {
namespace {

std::string describe_cuda(const std::vector<std::string>& folders) {
  try {
    return open_cuda_runtime(folders)->describe();
  } catch (const UsageError& error) {
    return fmt::format("none: {}", error.what());
  }
}

std::string describe_trainer(const std::vector<std::string>& folders) {
  try {
    return fmt::format("loads: {}, with LibTorch {}", train::open_trainer(folders)->path(),
                       kTorchVersion);
  } catch (const UsageError& error) {
    return fmt::format("absent: {}", error.what());
  }
}

void print_info(const JobSettings& job_settings) {
  const auto folders = part_folders(job_settings.text("parts"));
  std::cout << fmt::format("horon      {} (built with {})\n", kVersion, kBuildId);
  std::cout << fmt::format("machine    {}\n", bench::describe(bench::this_machine()));
  std::cout << fmt::format("kernels    {} (this CPU can run: {})\n", kernel_name(),
                           fmt::join(kernel_names(), ", "));
  std::cout << fmt::format("gpu        {}\n", describe_cuda(folders));
  std::cout << fmt::format("backends   {}\n", fmt::join(backend_names(), ", "));
  std::cout << "parts      (opened on demand)\n";
  for (const PartStatus& part : probe_parts(folders)) {
    std::cout << fmt::format("  {:<12} {} {}\n", part.name,
                             part.loads ? "loads:" : "absent:", part.detail);
  }
  std::cout << fmt::format("  {:<12} {}\n", "train", describe_trainer(folders));
}

void print_knobs(const JobSettings& job_settings) {
  constexpr const char* kRow = "{:<24} {:<14} {:<13} {}\n";
  std::cout << fmt::format(kRow, "setting", "value", "from", "what it does");
  for (const Setting& setting : setting_table()) {
    const bool of_job = setting.scope == SettingScope::kJob;
    std::cout << fmt::format(
        kRow, setting.name, of_job ? job_settings.text(setting.name) : setting.fallback,
        of_job ? job_settings.origin(setting.name) : "`horon train`", setting.help);
  }
}

}  // namespace

void add_info_command(CLI::App& app, Globals& globals) {
  auto* info = app.add_subcommand(
      "info", "Prints what was built, what this host has, and the effective settings");
  struct Choice {
    bool job_settings = false;
    bool markdown = false;
    std::string explained;
    bool algorithms = false;
    bool kind = false;
  };
  auto choice = std::make_shared<Choice>();
  info->add_flag("--knobs", choice->job_settings,
                 "list every setting, its value and the source of the value");
  info->add_flag("--knobs-md", choice->markdown, "print the settings as docs/knobs.md");
  info->add_option("--explain", choice->explained,
                   "explain one setting, by its name or its name in another program");
  info->add_flag("--algorithms", choice->algorithms,
                 "print the table from which algorithms are chosen");
  info->add_flag(
      "--kind", choice->kind,
      "print only the kind of this host's CPU, as used in the names of benchmark records");
  add_job_setting_flags(*info, globals);
  info->callback([choice, &globals] {
    const JobSettings job_settings = globals.job_settings();
    if (choice->kind) {
      std::cout << bench::this_machine().kind << "\n";
    } else if (choice->markdown) {
      std::cout << setting_docs();
    } else if (!choice->explained.empty()) {
      std::cout << explain_setting(choice->explained);
    } else if (choice->algorithms) {
      std::cout << print_algorithms(published_algorithms(job_settings));
    } else if (choice->job_settings) {
      print_knobs(job_settings);
    } else {
      print_info(job_settings);
    }
  });
}

}  // namespace horon::cli
