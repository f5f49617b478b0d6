#pragma once

#include <cstdint>
#include <string>

#include "horon/base/time.h"
#include "horon/train/trainer.h"

namespace horon::train {

// What people see of a run, and log.jsonl. Rank 0's; the others' is silent.
class Reporter {
 public:
  Reporter(bool speaks, const TrainConfig& config, int ranks, uint64_t total_steps);
  void open(const std::string& folder);  // where log.jsonl goes
  void begin(const std::string& about);
  void say(const std::string& line);
  void step(uint64_t step, double epoch, double loss, double rate, uint64_t samples);
  void evaluated(uint64_t step, double epoch, double loss, double top1, double top5);
  void summary(const TrainResult& result);

 private:
  void clear_bar();
  void log(const std::string& json);
  bool speaks_;
  bool terminal_;
  bool bar_ = false;
  TrainConfig config_;
  int ranks_;
  uint64_t total_;
  std::string file_;
  Stopwatch watch_;
  uint64_t samples_ = 0;
  uint64_t first_step_ = UINT64_MAX;
};

}  // namespace horon::train
