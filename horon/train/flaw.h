#pragma once

#include <string>
#include <vector>

#include "horon/comm/communicator.h"

// Values that are not finite: found where they arise, before they are mixed into everybody's.
namespace horon::train {

// to := from, or to += from; whether all of `from` is finite.
bool take_checked(float* to, const float* from, uint64_t count, bool adds);
uint64_t count_flaws(const float* values, uint64_t count);

// What was not finite on this rank in one step.
class Flaws {
 public:
  void clear() { text_.clear(); }
  bool found() const { return !text_.empty(); }
  void note_loss() { note("its loss"); }
  void note_gradient(const std::string& name, uint64_t values);
  // All ranks: "rank 1: 3 values of the gradient of 'fc.weight'", of each rank that has some.
  std::vector<std::string> share(Communicator& comm) const;

 private:
  void note(const std::string& text);
  std::string text_;  // the first
};

}  // namespace horon::train
