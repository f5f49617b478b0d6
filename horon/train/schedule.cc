#include "horon/train/schedule.h"

namespace horon::train {
namespace {

optim::ScheduleOptions options_of(const TrainConfig& config) {
  return {.learning_rate_strategy = config.learning_rate_strategy,
          .learning_rate = config.learning_rate,
          .lr_warmup_strategy = config.lr_warmup_strategy,
          .lr_warmup_epochs = config.lr_warmup_epochs,
          .lr_warmup_start = config.lr_warmup_start,
          .lr_power = config.lr_power,
          .lr_end = config.lr_end,
          .scale_lr = config.scale_lr,
          .lr_base_batch = config.lr_base_batch};
}

}  // namespace

Schedule::Schedule(const TrainConfig& config, double epochs, uint64_t global_batch)
    : optim::Schedule(options_of(config), epochs, global_batch) {}

std::string describe_rate(const TrainConfig& config) {
  return optim::describe_rate(options_of(config));
}

}  // namespace horon::train
