#pragma once

#include <string>
#include <vector>

#include "horon/comm/communicator.h"

// Finds values that are not finite on the rank where they arise, before they are summed over ranks.
namespace horon::train {

// to := from, or to += from if `adds`. Returns whether all of `from` is finite.
bool take_checked(float* to, const float* from, uint64_t count, bool adds);
// The number of values that are not finite.
uint64_t count_flaws(const float* values, uint64_t count);

// Records what was not finite on this rank in one step. One thread.
class Flaws {
 public:
  void clear() { text_.clear(); }
  bool found() const { return !text_.empty(); }
  void note_loss() { note("its loss"); }
  void note_gradient(const std::string& name, uint64_t values);
  // Collects one text of each rank that has any: "rank 1: 3 values of the gradient of 'fc.weight'".
  // All ranks.
  std::vector<std::string> gather(Communicator& comm) const;

 private:
  void note(const std::string& text);
  std::string text_;  // the first one noted
};

}  // namespace horon::train
