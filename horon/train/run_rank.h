#pragma once

#include <stop_token>
#include <string>

#include "horon/runtime/session.h"
#include "horon/train/trainer.h"

namespace horon::train {

// Runs one rank: trains, or only evaluates, and returns the same numbers on every rank. The session
// is connected; its signal handler is notified when set-up ends. Prints on rank 0 only.
struct RankTask {
  TrainConfig config;
  Session& session;
  std::stop_token stop = {};
  bool only_evaluates = false;
  int replicas_here = 1;  // in this process
  Accelerator accelerator = {};
  const Ingredients* ingredients = nullptr;  // null: everything by name
  std::string program = {};                  // command that resumes the run; empty: `horon`
};
// All ranks call it. Throws what a run can throw; callers own everything that `job` refers to.
TrainResult run_rank(RankTask job);

}  // namespace horon::train
