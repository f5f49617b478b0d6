#include "horon/train/start.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "horon/base/error.h"
#include "horon/file/file.h"

namespace horon::train {
namespace {

constexpr uint64_t kLargestFile = 16U << 20;

// The settings of a run or of its checkpoint, without those that are of one start alone.
TrainConfig read_config(const nlohmann::json& json, const std::string& path) {
  TrainConfig config;
  apply_whole(config, parse_settings(json.dump(), path).said.trainer);
  return config;
}

TrainConfig config_of_checkpoint(const std::string& checkpoint) {
  const std::string path = file::join_path(checkpoint, "manifest.json");
  if (!file::exists(path)) throw UsageError(path + ": there is no checkpoint");
  const auto json = nlohmann::json::parse(file::read(path, kLargestFile), nullptr, false);
  if (!json.is_object() || !json.contains("config"))
    throw UsageError(path + ": no manifest of a checkpoint", ExitCode::kCheckpoint);
  TrainConfig config = read_config(json["config"], path);
  config.device = DeviceChoice::kAuto;
  return config;
}

// A run that goes on has its settings already; nothing if there is none.
std::optional<TrainConfig> config_of_run(const std::string& folder, bool only_evaluates) {
  const std::string path = file::join_path(folder, "config.json");
  if (!file::exists(path)) return std::nullopt;
  const auto json = nlohmann::json::parse(file::read(path, kLargestFile), nullptr, false);
  if (!json.is_object()) throw UsageError(path + ": no settings of a run");
  TrainConfig config = read_config(json, path);
  if (only_evaluates)
    config.checkpoint_path.clear();  // the checkpoint that the run was started with
  if (only_evaluates || config.reduction != Reduction::kExact) config.device = DeviceChoice::kAuto;
  return config;
}

std::optional<TrainConfig> config_before(const TrainConfig& said, bool only_evaluates) {
  if (only_evaluates && !said.checkpoint_path.empty())
    return config_of_checkpoint(said.checkpoint_path);
  const bool begins_anew = !only_evaluates && said.resume == ResumeMode::kNever;
  if (said.model_dir.empty() || begins_anew) return std::nullopt;
  return config_of_run(said.model_dir, only_evaluates);
}

SettingsFile read_file(const std::string& path) {
  if (path.empty()) return {};
  try {
    return parse_settings(file::read(path, 1U << 20), path);
  } catch (const IoError& error) {
    throw UsageError(fmt::format("--config: {}", error.what()));
  }
}

// The job's settings of `file` count below flags and environment, and above HORON_CONFIG's.
JobSettings resolve_job_settings(const Given& flags, const EnvLookup& env, const Given& file) {
  JobSettings job_settings = JobSettings::resolve(flags, env, "");
  for (const auto& [name, value] : file) {
    const std::string_view from = job_settings.origin(name);
    if (from != "command line" && from != "environment") job_settings.set(name, value, "file");
  }
  return job_settings;
}

// The first run of a newcomer: the whole course of the learning rate, up and down.
void choose_rates(TrainConfig& config, const Given& given) {
  for (const char* name : {"learning_rate", "learning_rate_strategy", "lr_warmup_epochs"})
    if (given.contains(name)) return;
  if (config.model != TrainConfig{}.model || config.max_number_of_steps > 0) return;
  config.learning_rate_strategy = "polynomial";
  config.lr_warmup_epochs = 0.2 * static_cast<double>(config.train_epochs);
}

}  // namespace

Start Start::resolve(const Given& flags, const EnvLookup& env, const std::string& file,
                     bool only_evaluates) {
  const Said said = read_flags(flags);
  const SettingsFile from_file = read_file(file);
  TrainConfig alone;  // the settings given to this start alone
  if (!from_file.is_of_run) apply_whole(alone, from_file.said.trainer);
  apply_whole(alone, said.trainer);
  Start start;
  start.only_evaluates = only_evaluates || alone.run_mode == RunMode::kEvaluate;
  start.job_settings = resolve_job_settings(said.job, env, from_file.said.job);
  const auto before = config_before(alone, start.only_evaluates);
  start.config = before.value_or(TrainConfig{});
  from_file.is_of_run ? apply_whole(start.config, from_file.said.trainer)
                      : apply(start.config, from_file.said.trainer);
  apply(start.config, said.trainer);
  if (start.only_evaluates && !alone.checkpoint_path.empty()) start.config.model_dir.clear();
  start.given = said.trainer;
  start.given.insert(from_file.said.trainer.begin(), from_file.said.trainer.end());
  if (!before) choose_rates(start.config, start.given);
  return start;
}

}  // namespace horon::train
