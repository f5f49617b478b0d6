#pragma once

#include "horon/optim/schedule.h"
#include "horon/train/config.h"

namespace horon::train {

// The learning rate of a run, from its settings (see optim/schedule.h).
class Schedule : public optim::Schedule {
 public:
  Schedule(const TrainConfig& config, double epochs, uint64_t global_batch);
};

// "rate 0.2, polynomial after a warm-up of 2 epochs": text for users.
std::string describe_rate(const TrainConfig& config);

}  // namespace horon::train
