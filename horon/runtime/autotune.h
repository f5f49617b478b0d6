#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "horon/base/time.h"
#include "horon/runtime/plan.h"

namespace horon {

// The values that are tuned.
struct Tuning {
  uint64_t bucket_bytes = 0;
  int codec_threads = 1;
  bool operator==(const Tuning&) const = default;
};

// Tries settings on real steps, one after another, and keeps the best: the starting one unless
// another was at least 3 % faster. Pure: what is tried when depends only on the number of steps, so
// all ranks change at the same step. Not thread-safe.
class Tuner {
 public:
  Tuner(const Tuning& start, const std::vector<Tuning>& candidates, int steps_each = 8);

  // The setting to use now.
  const Tuning& current() const;
  // Records the duration of one step. True if current() has changed or all settings have been
  // tried.
  bool add(double seconds);
  bool done() const { return at_ >= tries_.size(); }
  // After done(): the best setting by this rank's times.
  const Tuning& best() const;

 private:
  static constexpr int kWarmUp = 2;  // steps after a change that are not measured
  struct Try {
    Tuning setting;
    std::vector<double> seconds;
  };
  std::vector<Try> tries_;  // the starting setting first
  int steps_each_;
  size_t at_ = 0;
  int step_ = 0;
};

// Tunes one lane while it works: it times the steps that follow the plan, which all ranks count
// alike, and starts over when the tensors change. Pure; only the driving thread calls it.
class LaneTuner {
 public:
  // `sizes`: bucket sizes to try, in bytes; empty: tuning is off. `limits`: the plan's limits until
  // then.
  LaneTuner(std::vector<uint64_t> sizes, const PlanLimits& limits)
      : sizes_(std::move(sizes)), limits_(limits) {}

  bool is_on() const { return !sizes_.empty(); }
  // Ends tuning; the current setting stays in use.
  void stop() { sizes_.clear(); }

  // Call at the end of a step that followed the plan. Returns what to use() from now on; nothing if
  // nothing changes.
  std::optional<Tuning> end_step(Clock::time_point now, const Plan& plan, int codec_threads);
  // All settings have been tried: end_step() returned the best by this rank's times. Rank 0's
  // result decides.
  bool has_tried_all() const { return tuner_ && tuner_->done(); }
  // Sets the plan's limits to those of `tuning`.
  void use(const Tuning& tuning, Plan& plan);

 private:
  std::vector<uint64_t> sizes_;
  PlanLimits limits_;
  std::optional<Tuner> tuner_;
  uint64_t version_ = 0;  // of the plan being tuned
  Clock::time_point step_began_;
};

// The tuning stored in the file for a job like this one; nothing if there is none or the file
// cannot be read.
std::optional<Tuning> read_tuning(const std::string& path, const std::string& job);
// Adds a tuning to the file. IoError if it cannot be written.
void write_tuning(const std::string& path, const std::string& job, const Tuning& found);

}  // namespace horon
