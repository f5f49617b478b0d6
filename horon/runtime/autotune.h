#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace horon {

// What is tuned.
struct Tuning {
  uint64_t bucket_bytes = 0;
  int codec_threads = 1;
  bool operator==(const Tuning&) const = default;
};

// Tries settings on real steps, one after the other, and keeps the best: the one it started from
// unless another was at least 3 % faster. Pure; which is tried when depends on the number of steps
// alone, so all ranks change together.
class Tuner {
 public:
  Tuner(const Tuning& start, const std::vector<Tuning>& candidates, int steps_each = 8);

  // To use now.
  const Tuning& current() const;
  // One step took this long. True if current() has changed, or all have been tried.
  bool add(double seconds);
  bool done() const { return at_ >= tries_.size(); }
  // After done(): by this rank's times.
  const Tuning& best() const;

 private:
  static constexpr int kWarmUp = 2;  // steps after a change that do not count
  struct Try {
    Tuning setting;
    std::vector<double> seconds;
  };
  std::vector<Try> tries_;  // the start first
  int steps_each_;
  size_t at_ = 0;
  int step_ = 0;
};

// What was found for a job like this one; nothing if the file says nothing about it, or cannot be
// read.
std::optional<Tuning> read_tuning(const std::string& path, const std::string& job);
// Adds to the file what was found; IoError if it cannot be written.
void write_tuning(const std::string& path, const std::string& job, const Tuning& found);

}  // namespace horon
