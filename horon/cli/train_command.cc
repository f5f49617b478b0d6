// horon train, horon evaluate: flags in, the trainer's part opened, exit code out.
#include <fmt/format.h>
#include <signal.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/signal.h"
#include "horon/cli/commands.h"
#include "horon/train/open.h"
#include "horon/train/start.h"

namespace horon::cli {
namespace {

struct TrainFlags {
  GivenFlags given;
  std::string config;
};

constexpr const char* kTrainExamples =
    "Examples:\n  horon train                               resnet_tiny on shapes10: about 99 % in "
    "a minute\n  horon run -np 4 horon train --model resnet_v1_20 --dataset cifar10 --data_dir "
    "cifar \\\n      --learning_rate_strategy '5:0->0.4,30:0.4->0' --train_epochs 30 --model_dir "
    "run1\n  horon train --model_dir run1              resumes run1 with the settings stored "
    "there\n  horon run -np 3 horon train --reduction exact    the same bits on any number of "
    "ranks\n  horon plot run1                           plots accuracy and loss\nExit code 75: "
    "interrupted; a checkpoint was written, the same command resumes. 13: checkpoint error, 17: "
    "value not finite, 18: settings differ from those the run was started with, 11: from other "
    "ranks'.";
constexpr const char* kEvaluateExamples =
    "Examples:\n"
    "  horon evaluate --model_dir run1           the newest checkpoint\n"
    "  horon run -np 4 horon evaluate --checkpoint_path run1/best/ckpt-00000790";

// Unknown flags and those of other programs: the table of settings has the error message.
void refuse_extras(const CLI::App& command) {
  for (const std::string& extra : command.remaining()) {
    if (!extra.starts_with("--")) throw UsageError(fmt::format("'{}' was not expected", extra));
    const std::string flag = extra.substr(0, extra.find('='));
    read_setting(flag, "", flag);
  }
}

// From here on signals wait for whoever reads them: none is lost, and none kills, while the trainer
// is loaded.
void hold_signals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int one : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&held, one);
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

int run(const CLI::App& command, const TrainFlags& flags, bool only_evaluates) {
  refuse_extras(command);
  const auto start = train::Start::resolve(flags.given, process_env, flags.config, only_evaluates);
  hold_signals();
  const auto part = [&] {
    const StopOnSignal signals(true);  // leaves at once
    return train::open_trainer(part_folders(start.job_settings.text("parts")));
  }();
  const nlohmann::json settings = {{"config", to_json(start.config)},
                                   {"given", start.given},
                                   {"job_settings", start.job_settings.given()}};
  const int code = part->function<int(const char*, int)>("horon_train_run")(
      settings.dump().c_str(), start.only_evaluates ? 1 : 0);
  // LibTorch's threads and ours end with the process.
  std::cout.flush();
  return code;
}

}  // namespace

void add_train_commands(CLI::App& app, Globals& globals) {
  for (const bool only_evaluates : {false, true}) {
    auto* command = app.add_subcommand(
        only_evaluates ? "evaluate" : "train",
        only_evaluates
            ? "Evaluates a checkpoint on the test set, each sample once, on any number of ranks"
            : "Trains a network in one process or, under `horon run`, in many");
    auto flags = std::make_shared<TrainFlags>();
    add_all_settings(*command, flags->given);
    command->add_option(
        "--config", flags->config,
        "file with 'name = value' lines, or a run's config.json; flags override it");
    command->allow_extras();  // named with the nearest one
    command->footer(only_evaluates ? kEvaluateExamples : kTrainExamples);
    command->callback([command, flags, only_evaluates, &globals] {
      globals.exit_code = run(*command, *flags, only_evaluates);
    });
  }
}

}  // namespace horon::cli
