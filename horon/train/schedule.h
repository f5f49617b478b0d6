#pragma once

#include <string>
#include <vector>

#include "horon/train/config.h"

namespace horon::train {

// The learning rate over time, counted in epochs of samples (a fraction within one). Pure.
class Schedule {
 public:
  // Stages "5:0.001->0.4,10:0.4=>0.8,30:0.4": until epoch 5 from 0.001 to 0.4 in a straight line,
  // then until 10 to 0.8 by a constant factor, then 0.4; after the last one its last value. Or
  // "cosine", "polynomial", "" (constant), with warm-up from lr_end... to the rate. UsageError for
  // others.
  Schedule(const TrainConfig& config, double epochs, uint64_t global_batch);
  double at(double epoch) const;

 private:
  struct Stage {
    double end;  // epoch
    double from;
    double to;
    bool exponential;
  };
  std::vector<Stage> stages_;
  std::string shape_;
  double rate_ = 0;
  double warmup_ = 0;
  bool warms_exponentially_ = false;
  double epochs_ = 0;
  double power_ = 1;
  double end_ = 0;
};

}  // namespace horon::train
