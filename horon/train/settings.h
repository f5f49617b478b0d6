#pragma once

#include <map>
#include <string>

#include "horon/train/config.h"

// Settings as people give them, in layers: the run's own that goes on, a file, flags. Pure.
namespace horon::train {

using Given = std::map<std::string, std::string>;  // name -> value

// What was said, by the names of the table and with values as they are kept.
struct Said {
  Given trainer;
  Given job;
  // Adds one, by whatever name, in place of what was said before it. UsageError beginning with
  // `where`.
  void add(const std::string& name, const std::string& value, const std::string& where);
};

// Of flags, by whatever names. UsageError where two names of one setting contradict each other.
Said read_flags(const Given& flags);

// Of a file: "name = value" lines (base/setting.h), or the config.json of a run (without what is
// forgotten when a run goes on, its folder and how it was begun). UsageError with file and line.
struct SettingsFile {
  Said said;
  bool is_of_run = false;  // all settings of a run, in which one may replace another
};
SettingsFile parse_settings(const std::string& text, const std::string& path);

// Puts a layer on top of `config`. What it gives replaces its rival below: a number of steps the
// number of epochs, one batch size the other. UsageError where one layer gives both, or a rate
// beside stages, which have their own.
void apply(TrainConfig& config, const Given& layer);
// For a layer with all settings of a run: nothing in it contradicts.
void apply_whole(TrainConfig& config, const Given& layer);

// All settings, as if each had been given.
Given all_of(const TrainConfig& config);

}  // namespace horon::train
