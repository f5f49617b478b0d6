#pragma once

#include <memory>
#include <stop_token>

#include "horon/base/signal.h"
#include "horon/comm/communicator.h"
#include "horon/net/store.h"
#include "horon/train/trainer.h"

namespace horon::train {

// One rank of a run: trains (or only evaluates) and returns the same numbers on every rank. `store`
// as for Runtime. Prints on rank 0 only.
struct RankJob {
  TrainConfig config;
  std::unique_ptr<Communicator> comm;
  std::shared_ptr<Store> store;  // may be null
  std::stop_token stop;
  bool only_evaluates = false;
  int replicas_here = 1;  // of this process
  Accelerator place = {};
  const Ingredients* ingredients = nullptr;  // null: everything by name
  int store_rank = -1;                       // that serves the store; -1: none
  StopOnSignal* signals = nullptr;           // told when set-up is over; null: nobody
  Knobs knobs = {};                          // the job's settings
  std::string program = {};                  // that people start again to go on; empty: `horon`
};
TrainResult run_rank(RankJob job);

}  // namespace horon::train
