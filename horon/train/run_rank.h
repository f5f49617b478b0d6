#pragma once

#include <stop_token>
#include <string>

#include "horon/runtime/session.h"
#include "horon/train/trainer.h"

namespace horon::train {

// One rank of a run: trains (or only evaluates) and returns the same numbers on every rank. The
// session is connected; its signals are told when set-up is over. Prints on rank 0 only.
struct RankJob {
  TrainConfig config;
  Session& session;
  std::stop_token stop = {};
  bool only_evaluates = false;
  int replicas_here = 1;  // of this process
  Accelerator place = {};
  const Ingredients* ingredients = nullptr;  // null: everything by name
  std::string program = {};                  // that people start again to go on; empty: `horon`
};
TrainResult run_rank(RankJob job);

}  // namespace horon::train
