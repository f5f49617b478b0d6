// horon train, horon evaluate: flags in, the trainer's part opened, exit code out.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/signal.h"
#include "horon/base/text.h"
#include "horon/cli/commands.h"
#include "horon/file/file.h"
#include "horon/train/open.h"
#include "horon/train/settings.h"

namespace horon::cli {
namespace {

struct TrainFlags {
  std::map<std::string, std::string> given;  // by name
  std::string config;
  std::string timeline;
};

// Flags of other programs that mean something else here, or nothing yet.
const std::vector<std::pair<std::string, std::string>> kForeign = {
    {"ps_hosts", "parameter servers are not built in yet; `horon run -np N` trains synchronously"},
    {"worker_hosts", "the launcher knows the hosts: horon run -np N -H a:4,b:4 horon train ..."},
    {"job_name", "every rank is alike; start them with `horon run`"},
    {"task_index", "ranks are numbered by the launcher: `horon run`"},
    {"variable_update", "gradients are all-reduced; --reduction chooses how"},
    {"use_fp16", "--dtype bf16 is the nearest that is built in"},
    {"data_url", "use --data_dir; copy remote files first: horon cp URL DIR"},
    {"train_url", "use --model_dir"},
    {"sync_replicas", "training is always synchronous"},
    {"dgc_sparsity_strategy", "gradient compression by sparsity is not built in yet"},
    {"dgc_momentum", "gradient compression by sparsity is not built in yet"},
    {"all_reduce_alg", "chosen by itself; see --algorithm of `horon bench allreduce`"},
    {"loss_scale", "bf16 needs none"},
    {"clone_on_cpu", "replicas are on the CPU unless there is a GPU"}};

constexpr const char* kTrainExamples =
    "Examples:\n"
    "  horon train                               resnet_tiny on shapes10: about 99 % in a minute\n"
    "  horon run -np 4 horon train --model resnet_v1_20 --dataset cifar10 --data_dir cifar \\\n"
    "      --learning_rate_strategy '5:0->0.4,30:0.4->0' --train_epochs 30 --model_dir run1\n"
    "  horon train --model_dir run1              goes on where run1 stopped: its settings are "
    "there\n"
    "  horon run -np 3 horon train --reduction exact    the same bits on any number of ranks\n"
    "  horon plot run1                           accuracy and loss as a picture\n"
    "Exit code 75: interrupted, a checkpoint was written, the same command goes on. 13: "
    "checkpoints, "
    "17: not finite, 18: other settings than the run was begun with, 11: than other ranks.";
constexpr const char* kEvaluateExamples =
    "Examples:\n"
    "  horon evaluate --model_dir run1           the newest checkpoint\n"
    "  horon run -np 4 horon evaluate --checkpoint_path run1/best/ckpt-00000790";

void add_fields(CLI::App& command, TrainFlags& flags) {
  const train::TrainConfig defaults;
  for (const train::Field& field : train::fields()) {
    const std::string name = field.name;
    const std::string value = train::get_field(defaults, field);
    const std::string help = value.empty() ? field.help : fmt::format("{} [{}]", field.help, value);
    std::string dashes = name;  // --batch-size is --batch_size
    std::replace(dashes.begin(), dashes.end(), '_', '-');
    auto* option =
        command.add_option("--" + name + (dashes == name ? "" : ",--" + dashes),
                           CLI::callback_t([&flags, name](const CLI::results_t& results) {
                             flags.given[name] = results.empty() ? "true" : results.back();
                             return true;
                           }),
                           help);
    option->type_name(std::holds_alternative<bool train::TrainConfig::*>(field.member) ? "BOOL"
                                                                                       : "");
    if (std::holds_alternative<bool train::TrainConfig::*>(field.member)) option->expected(0, 1);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // of a flag that is given twice
  }
  command.add_option("--config", flags.config,
                     "file with 'name = value' lines, or a run's config.json; flags win over it");
  command.add_option("--timeline", flags.timeline,
                     "file for a timeline, as HORON_TIMELINE (see docs/knobs.md)");
  command.allow_extras();  // named with the nearest one below
}

// Flags that nobody knows, and those of other programs.
void check_extras(const CLI::App& command) {
  for (const std::string& extra : command.remaining()) {
    if (!extra.starts_with("--")) throw UsageError(fmt::format("'{}' was not expected", extra));
    const std::string name = extra.substr(2, extra.find('=') - 2);
    for (const auto& [foreign, answer] : kForeign) {
      if (name == foreign || (foreign.starts_with("dgc_") && name.starts_with("dgc_")))
        throw UsageError(fmt::format("--{}: {}", name, answer));
    }
    std::vector<std::string> names;
    for (const train::Field& field : train::fields()) names.emplace_back(field.name);
    const std::string close = nearest(name, names);
    throw UsageError(fmt::format("unknown flag --{}{}", name,
                                 close.empty() ? "" : fmt::format(", did you mean --{}?", close)));
  }
}

// A run that goes on has its settings already; flags change them.
train::TrainConfig stored_config(const TrainFlags& flags, bool only_evaluates) {
  const auto checkpoint = flags.given.find("checkpoint_path");
  if (only_evaluates && checkpoint != flags.given.end()) {
    const std::string path = file::join(checkpoint->second, "manifest.json");
    if (!file::exists(path)) throw UsageError(path + ": there is no checkpoint");
    const auto json = nlohmann::json::parse(file::read(path, 16U << 20), nullptr, false);
    if (!json.is_object() || !json.contains("config"))
      throw UsageError(path + ": no manifest of a checkpoint", ExitCode::kCheckpoint);
    train::TrainConfig config = train::config_from_json(json["config"]);
    config.device = "auto";
    config.model_dir.clear();  // this checkpoint, not the run's newest
    return config;
  }
  const auto folder = flags.given.find("model_dir");
  const auto resume = flags.given.find("resume");
  const bool begins_anew =
      !only_evaluates && resume != flags.given.end() && resume->second == "never";
  if (folder == flags.given.end() || begins_anew) return {};
  const std::string path = file::join(folder->second, "config.json");
  if (!file::exists(path)) return {};
  const auto json = nlohmann::json::parse(file::read(path, 1U << 20), nullptr, false);
  if (!json.is_object()) throw UsageError(path + ": no settings of a run");
  train::TrainConfig config = train::config_from_json(json);
  config.hex_loss = false;  // of each run its own
  config.resume = "auto";
  config.run_mode = "train";
  if (only_evaluates) config.checkpoint_path.clear();  // what it began with
  if (only_evaluates || config.reduction != "exact") config.device = "auto";
  return config;
}

train::SettingsFile read_settings(const std::string& path) {
  try {
    return train::parse_settings(file::read(path, 1U << 20), path);
  } catch (const IoError& error) {
    throw UsageError(fmt::format("--config: {}", error.what()));
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

bool is_evaluation(const TrainFlags& flags) {
  const auto mode = flags.given.find("run_mode");
  if (mode == flags.given.end()) return false;
  train::TrainConfig config;
  train::set_field(config, "run_mode", mode->second);
  return config.run_mode != "train";
}

void run(const CLI::App& command, const TrainFlags& flags, bool only_evaluates, Globals& globals) {
  check_extras(command);
  const bool evaluates = only_evaluates || is_evaluation(flags);
  train::TrainConfig config = stored_config(flags, evaluates);
  const bool goes_on = !config.model_dir.empty();
  train::Given given = flags.given;
  if (!flags.config.empty()) {
    const auto file = read_settings(flags.config);
    file.is_of_run ? apply_whole(config, file.given) : apply(config, file.given);
    given.insert(file.given.begin(), file.given.end());
  }
  apply(config, flags.given);
  if (evaluates && flags.given.contains("checkpoint_path")) config.model_dir.clear();
  // The first run of a newcomer: the whole course of the learning rate, up and down.
  const auto is_given = [&](const char* name) { return given.contains(name); };
  const bool untouched = !goes_on && !is_given("learning_rate") &&
                         !is_given("learning_rate_strategy") && !is_given("lr_warmup_epochs");
  if (untouched && config.model == "resnet_tiny" && config.max_number_of_steps == 0) {
    config.learning_rate_strategy = "polynomial";
    config.lr_warmup_epochs = 0.2 * static_cast<double>(config.train_epochs);
  }
  hold_signals();
  const auto part = [&] {
    StopOnSignal signals;
    signals.leave_at_once(true);
    return train::open_trainer(part_folders(globals.knobs().text("parts")));
  }();
  if (!flags.timeline.empty()) setenv("HORON_TIMELINE", flags.timeline.c_str(), 1);
  const nlohmann::json settings = {{"config", to_json(config)}, {"given", given}};
  globals.exit_code = part->function<int(const char*, int)>("horon_train_run")(
      settings.dump().c_str(), evaluates ? 1 : 0);
  // LibTorch's threads and ours end with the process.
  std::cout.flush();
}

}  // namespace

void add_train_commands(CLI::App& app, Globals& globals) {
  for (const bool only_evaluates : {false, true}) {
    auto* command = app.add_subcommand(
        only_evaluates ? "evaluate" : "train",
        only_evaluates
            ? "Evaluates a checkpoint: every sample of the test set once, on any number of ranks"
            : "Trains a network, on one process or, under `horon run`, on many");
    auto flags = std::make_shared<TrainFlags>();
    add_fields(*command, *flags);
    command->footer(only_evaluates ? kEvaluateExamples : kTrainExamples);
    command->callback([command, flags, only_evaluates, &globals] {
      run(*command, *flags, only_evaluates, globals);
    });
  }
}

}  // namespace horon::cli
