#pragma once

#include "horon/data/order.h"

namespace horon::train {

// Length of a run: a number of epochs or, if that is 0, of steps. A value; pure.
struct RunLength {
  uint64_t epochs = 0;
  uint64_t steps = 0;
  uint64_t passes = 1;   // batches per step; the very last step takes what is left
  uint64_t batches = 1;  // per epoch
  uint64_t batch = 1;    // samples per batch

  double in_epochs() const {
    return epochs > 0 ? static_cast<double>(epochs)
                      : static_cast<double>(steps * passes) / static_cast<double>(batches);
  }
  bool is_over(uint64_t step, const Position& position) const {
    return epochs > 0 ? position.epoch >= epochs : step >= steps;
  }
  // Total number of steps, seen from the current step and position.
  uint64_t total(uint64_t step, const Position& position) const {
    if (epochs == 0) return steps;
    const uint64_t done = position.epoch * batches + divide_up(position.next, batch);
    const uint64_t all = epochs * batches;
    return step + (all > done ? divide_up(all - done, passes) : 0);
  }
  static uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }
};

}  // namespace horon::train
