#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>

#include "horon/optim/update_rule.h"

namespace horon::optim {

// One optimizer: its value for --optimizer, the settings it reads (separated by blanks), and the
// names of its state arrays in checkpoints, which never change. The loop over host memory
// (optimizer.cc) and the kernel (cuda/math.cu) are generated from the formula.
template <typename F>
struct OptimizerRow {
  using Formula = F;
  std::string_view word;
  std::string_view reads;
  std::array<std::string_view, F::kArrays> state;
};

// The table. To add an optimizer, add a formula to update_rule.h and a row at the end here;
// optim_test then reports what the table of settings (base/setting_table.cc) lacks. C++ programs
// select it by its word (set_field), or by an enumerator of OptimizerKind if there is one.
inline constexpr std::tuple kOptimizers = {
    OptimizerRow<Sgd>{"sgd", "weight_decay", {}},
    OptimizerRow<Momentum>{"momentum", "momentum nesterov weight_decay", {"velocity"}},
    OptimizerRow<Adam>{"adam", "weight_decay", {"first", "second"}},
    OptimizerRow<Lars>{"lars", "momentum weight_decay", {"velocity"}},
};

// The largest number of state arrays of an optimizer.
inline constexpr size_t kMostArrays =
    std::apply([](const auto&... row) { return std::max({row.state.size()...}); }, kOptimizers);

// Calls action(row, kind) for every row, in order.
template <typename Action>
constexpr void for_each_optimizer(const Action& action) {
  std::apply(
      [&](const auto&... row) {
        uint8_t at = 0;
        (action(row, static_cast<OptimizerKind>(at++)), ...);
      },
      kOptimizers);
}

}  // namespace horon::optim
