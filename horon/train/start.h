#pragma once

#include <string>

#include "horon/base/knob.h"
#include "horon/train/settings.h"

namespace horon::train {

// A run as it is about to begin, or to go on: what `horon train` makes of its flags, for programs,
// too. Trainer takes it.
struct Start {
  TrainConfig config;
  Knobs knobs = {};  // the job's
  Given given = {};  // of the trainer's, what this start was told: ranks compare that alone
  bool only_evaluates = false;
  bool is_command = false;  // `horon train` itself: people go on by its name

  // `flags`: settings by the names of the table or other programs', whatever their spelling.
  // `file`: lines "name = value", or the config.json of a run; empty: none. Of each setting the
  // first that is said counts: flag, for the job's the environment, file, HORON_CONFIG (the job's
  // alone), the run in model_dir that goes on, default. What is said replaces its rival below it
  // (apply() in settings.h). Whoever says nothing of rates gets resnet_tiny's own course.
  // UsageError naming flag, variable, or file and line.
  static Start resolve(const Given& flags, const EnvLookup& env, const std::string& file,
                       bool only_evaluates = false);
};

}  // namespace horon::train
