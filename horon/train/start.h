#pragma once

#include <string>

#include "horon/base/job_settings.h"
#include "horon/train/settings.h"

namespace horon::train {

// The resolved settings of a run that is about to start or resume: what `horon train` makes from
// its flags, for programs, too. Pass it to Trainer. A value.
//
//   auto start = horon::Start::resolve({{"train_epochs", "5"}}, horon::process_env, "");
//   horon::Trainer(std::move(start)).train();
struct Start {
  TrainConfig config;
  JobSettings job_settings = {};  // for launcher and communicator
  Given given = {};               // trainer settings given to this start: ranks compare only these
  bool only_evaluates = false;
  bool is_command = false;  // it is `horon train` itself: messages name that command

  // `flags`: settings by their names in the table or in other programs, in any spelling. `file`:
  // "name = value" lines or the config.json of a run; empty: none. For each setting the first
  // source that has it decides: flag, environment (job settings only), file, HORON_CONFIG (job
  // settings only), the run in model_dir that is resumed, default. A given setting replaces its
  // rival in lower layers (apply() in settings.h). Without any setting of the learning rate, a new
  // run of resnet_tiny gets a default schedule. UsageError that names flag, variable, or file and
  // line.
  static Start resolve(const Given& flags, const EnvLookup& env, const std::string& file,
                       bool only_evaluates = false);
};

}  // namespace horon::train
