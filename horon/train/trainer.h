#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "horon/comm/communicator.h"
#include "horon/net/store.h"
#include "horon/train/config.h"
#include "horon/train/replica.h"

namespace horon::train {

struct TrainResult {
  uint64_t steps = 0;
  double epochs = 0;
  double train_loss = 0;
  double test_loss = 0;
  double test_top1 = 0;
  double test_top5 = 0;
  uint64_t test_samples = 0;
  double seconds = 0;
  double images_per_s = 0;
  bool interrupted = false;  // stopped by a signal; a checkpoint was written
  std::string model_dir;
  std::string checkpoint;  // the last one
};

// One rank of a run: trains (or only evaluates) and returns the same numbers on every rank. `store`
// as for Runtime. Prints on rank 0 only.
struct RankJob {
  TrainConfig config;
  std::unique_ptr<Communicator> comm;
  std::shared_ptr<Store> store;  // may be null
  std::stop_token stop;
  bool only_evaluates = false;
  int replicas_here = 1;  // of this process
};
TrainResult run_rank(RankJob job);

// All replicas of this process, wherever it was started from; the exit code.
int run_process(const TrainConfig& config, bool only_evaluates);

}  // namespace horon::train
