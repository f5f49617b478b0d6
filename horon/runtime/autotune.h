#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace horon {

// Tries bucket sizes on real steps, one after the other, and keeps the best: the one it started
// from unless another was at least 3 % faster. Pure; which size is tried when depends on the number
// of steps alone, so all ranks change together.
class BucketTuner {
 public:
  BucketTuner(uint64_t start, std::vector<uint64_t> candidates, int steps_each = 8);

  // Bytes of a bucket to use now.
  uint64_t current() const;
  // One step took this long. True if current() has changed, or all have been tried.
  bool add(double seconds);
  bool done() const { return at_ >= tries_.size(); }
  // After done(): by this rank's times.
  uint64_t best() const;

 private:
  static constexpr int kWarmUp = 2;  // steps after a change that do not count
  struct Try {
    uint64_t bytes = 0;
    std::vector<double> seconds;
  };
  std::vector<Try> tries_;  // the start first
  int steps_each_;
  size_t at_ = 0;
  int step_ = 0;
};

// What was found for a job like this one; 0 if the file says nothing about it, or cannot be read.
uint64_t read_tuning(const std::string& path, const std::string& job);
// Adds to the file what was found; IoError if it cannot be written.
void write_tuning(const std::string& path, const std::string& job, uint64_t bucket_bytes);

}  // namespace horon
