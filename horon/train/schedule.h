#pragma once

#include <optional>
#include <string>
#include <vector>

#include "horon/train/config.h"

namespace horon::train {

// The learning rate over time, counted in epochs of samples (a fraction within one). Pure.
class Schedule {
 public:
  // Stages "5:0.001->0.4,10:0.4=>0.8,30:0.4": until epoch 5 from 0.001 to 0.4 in a straight line,
  // then until 10 to 0.8 by a constant factor, then 0.4; after the last one its last value.
  // lr_warmup_strategy exponential makes a constant factor of the first straight line. Or
  // "cosine", "polynomial", "" (constant), after a warm-up from lr_warmup_start to the rate.
  // UsageError for others.
  Schedule(const TrainConfig& config, double epochs, uint64_t global_batch);
  double at(double epoch) const;
  // The epoch from which on stages that have ended leave the rate at 0 for an epoch or longer:
  // nothing would be learned.
  std::optional<double> idle_from() const;
  // Whether both give the same rates before `epoch`.
  bool is_same_until(double epoch, const Schedule& other) const;

 private:
  void read_stages(const std::string& text, double factor);
  void bend_first(const std::string& text);
  struct Stage {
    double end;  // epoch
    double from;
    double to;
    bool exponential;
  };
  std::vector<Stage> stages_;
  RateShape shape_ = RateShape::kConstant;
  double rate_ = 0;
  double warmup_ = 0;
  double start_ = 0;  // of the warm-up
  bool warms_exponentially_ = false;
  double epochs_ = 0;
  double power_ = 1;
  double end_ = 0;
};

// "rate 0.2, polynomial after a warm-up of 2 epochs": for people.
std::string describe_rate(const TrainConfig& config);

}  // namespace horon::train
