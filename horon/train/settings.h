#pragma once

#include <map>
#include <string>

#include "horon/train/config.h"

// Settings in layers: the resumed run's own, a file, flags. Pure functions.
namespace horon::train {

using Given = std::map<std::string, std::string>;  // name -> value

// Given settings, under their names in the table and with normalised values.
struct Said {
  Given trainer;
  Given job;
  // Adds one setting, by any of its names; replaces an earlier value. UsageError that begins with
  // `where`.
  void add(const std::string& name, const std::string& value, const std::string& where);
  void put(const ReadSetting& read);
};

// Settings from flags, by any of their names. UsageError if two names of one setting contradict
// each other.
Said read_flags(const Given& flags);

// Settings from a file: "name = value" lines (base/setting.h), or the config.json of a run (without
// its folder and what applied only to its start). UsageError with file and line.
struct SettingsFile {
  Said said;
  bool is_of_run = false;  // has all settings of a run, of which one may replace another
};
SettingsFile parse_settings(const std::string& text, const std::string& path);

// Applies a layer to `config`. A setting replaces its rival in lower layers: a number of steps the
// number of epochs, one batch size the other. UsageError if one layer gives both, or a rate
// together with stages, which contain rates.
void apply(TrainConfig& config, const Given& layer);
// For a layer that has all settings of a run: contradictions are not checked.
void apply_whole(TrainConfig& config, const Given& layer);

// All settings, as if each had been given.
Given all_of(const TrainConfig& config);

}  // namespace horon::train
