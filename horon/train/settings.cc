#include "horon/train/settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/job_settings.h"
#include "horon/base/text.h"

namespace horon::train {
namespace {

nlohmann::json parse_json(const std::string& text, const std::string& path) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {  // the message has line and column
    throw UsageError(fmt::format("{}: {}", path, error.what()));
  }
}

SettingsFile parse_run(const std::string& text, const std::string& path) {
  const nlohmann::json json = parse_json(text, path);
  SettingsFile file;
  file.is_of_run = true;
  for (const auto& [name, value] : json.items()) {
    const Setting* setting = look_up_setting(name);
    if (value.is_object()) continue;  // derived from the data, for users
    if (setting != nullptr && setting->on_resume == OnResume::kForgotten) continue;
    file.said.add(name, value.is_string() ? value.get<std::string>() : value.dump(),
                  fmt::format("{}: {}", path, name));
  }
  return file;
}

// Whether it says something: 0 is "as the other one says".
bool says(const Given& layer, const std::string& name) {
  const auto found = layer.find(name);
  return found != layer.end() && found->second != "0";
}

void refuse_both(const Given& layer, const std::string& one, const std::string& other) {
  if (says(layer, one) && says(layer, other))
    throw UsageError(fmt::format("--{} {} and --{} {}: give one of the two", one, layer.at(one),
                                 other, layer.at(other)));
}

}  // namespace

void Said::add(const std::string& name, const std::string& value, const std::string& where) {
  put(read_setting(name, value, where));
}

void Said::put(const ReadSetting& read) {
  Given& layer = read.setting.scope == SettingScope::kJob ? job : trainer;
  layer[std::string(read.setting.name)] = read.value;
}

Said read_flags(const Given& flags) {
  Said said;
  for (const ReadSetting& read : horon::read_flags(flags)) said.put(read);
  return said;
}

SettingsFile parse_settings(const std::string& text, const std::string& path) {
  if (trim(text).starts_with('{')) return parse_run(text, path);
  SettingsFile file;
  for (const SettingLine& line : parse_setting_lines(text, path))
    file.said.add(line.name, line.value, line.where);
  return file;
}

void apply(TrainConfig& config, const Given& layer) {
  refuse_both(layer, "batch_size", "batch_size_per_replica");
  refuse_both(layer, "train_epochs", "max_number_of_steps");
  if (says(layer, "batch_size")) config.batch_size_per_replica = 0;
  if (says(layer, "train_epochs")) config.max_number_of_steps = 0;
  apply_whole(config, layer);
  if (says(layer, "lr_warmup_epochs") && has_stages(config))
    throw UsageError(
        fmt::format("--lr_warmup_epochs {} and the stages {}: a warm-up is a stage of its own, "
                    "'epoch:a->b'",
                    layer.at("lr_warmup_epochs"), config.learning_rate_strategy));
  if (layer.contains("learning_rate") && has_stages(config))
    throw UsageError(
        fmt::format("--learning_rate {} and the stages {}: stages have their own rates; leave one "
                    "of the two out",
                    layer.at("learning_rate"), config.learning_rate_strategy));
}

void apply_whole(TrainConfig& config, const Given& layer) {
  for (const auto& [name, value] : layer) set_field(config, name, value);
}

Given all_of(const TrainConfig& config) {
  Given all;
  for (const Setting& setting : setting_table())
    if (setting.scope != SettingScope::kJob)
      all[std::string(setting.name)] = get_field(config, setting.name);
  return all;
}

}  // namespace horon::train
