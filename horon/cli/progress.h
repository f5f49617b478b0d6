#pragma once

#include <cstdint>
#include <string>

#include "horon/base/time.h"

namespace horon::cli {

// Progress on stderr: a bar that redraws itself on a terminal, otherwise an occasional line. One
// thread at a time.
class Progress {
 public:
  enum class Unit { kBytes, kItems };
  Progress(std::string what, Unit unit);
  ~Progress();
  void update(uint64_t done, uint64_t total);

 private:
  void draw(bool last);
  std::string what_;
  Unit unit_;
  bool terminal_;
  Stopwatch watch_;
  double drawn_ = -10;  // seconds, when it was drawn last
  uint64_t done_ = 0;
  uint64_t total_ = 0;
  bool shown_ = false;
};

}  // namespace horon::cli
