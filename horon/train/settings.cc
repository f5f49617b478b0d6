#include "horon/train/settings.h"

#include <fmt/format.h>

#include <cctype>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon::train {
namespace {

// Of one run alone, not of one like it.
bool is_of_one_run(const std::string& name) {
  return name == "model_dir" || name == "resume" || name == "run_mode" || name == "hex_loss";
}

nlohmann::json parse_json(const std::string& text, const std::string& path) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {  // says line and column
    throw UsageError(fmt::format("{}: {}", path, error.what()));
  }
}

void check_value(const std::string& name, const std::string& value, const std::string& where) {
  try {
    TrainConfig scratch;
    set_field(scratch, name, value);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", where, error.what()));
  }
}

SettingsFile parse_run(const std::string& text, const std::string& path) {
  const nlohmann::json json = parse_json(text, path);
  SettingsFile file;
  file.is_of_run = true;
  for (const auto& [name, value] : json.items()) {
    if (value.is_object() || is_of_one_run(name)) continue;
    file.given[name] = value.is_string() ? value.get<std::string>() : value.dump();
    check_value(name, file.given[name], path);
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

SettingsFile parse_settings(const std::string& text, const std::string& path) {
  if (trim(text).starts_with('{')) return parse_run(text, path);
  SettingsFile file;
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const std::string content(trim(line.substr(0, line.find('#'))));
    if (content.empty()) continue;
    const auto wrong = [&](const std::string& what) {
      throw UsageError(fmt::format("{}, line {}: {}", path, number, what));
    };
    const size_t equals = content.find('=');
    if (equals == std::string::npos || equals == 0) wrong("'name = value' is wanted");
    std::string name(trim(content.substr(0, equals)));
    for (char& c : name)
      c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::string value(trim(content.substr(equals + 1)));
    if (file.given.contains(name)) wrong(fmt::format("'{}' is given twice", name));
    check_value(name, value, fmt::format("{}, line {}", path, number));
    file.given[name] = value;
  }
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
  for (const Field& field : fields()) all[field.name] = get_field(config, field);
  return all;
}

}  // namespace horon::train
