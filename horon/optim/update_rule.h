#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

// The formulas of the optimizers: what one step does to one element. The CPU's loops and the GPU's
// kernels are generated from them; compiled without contraction, both give the same bits. The
// caller owns weights, gradients and state. Functions of their arguments only: any thread, no
// errors.
namespace horon::optim {

// Index of a row of kOptimizers (optimizer_table.h).
enum class OptimizerKind : uint8_t { kSgd, kMomentum, kAdam, kLars };

// What all elements of a slice share in one step.
struct UpdateRule {
  OptimizerKind optimizer = OptimizerKind::kSgd;
  bool nesterov = false;
  float lr = 0;
  float decay = 0;  // 0 where the slice does not decay
  float momentum = 0;
  float root = 1;           // Adam: square root of the second correction
  double rate = 0;          // of the step, from the schedule
  double weight_decay = 0;  // from the settings
};

// Defaults of a formula. Each formula also has update(rule, root_of, w, g, state...) for one
// element: its weight, its gradient, and its element of each state array. `root_of` is the device's
// square root.
struct Formula {
  static constexpr size_t kArrays = 0;  // of state
  // For a slice that decays, lr is slice_rate(rule, norm of weights, norm of gradients).
  static constexpr bool kTakesNorms = false;
  // Called at the beginning of a step, on the host. `steps` counts from 1.
  static void begin(UpdateRule& rule, uint64_t /*steps*/) {
    rule.lr = static_cast<float>(rule.rate);
  }
};

// w -= lr * (g + decay * w)
struct Sgd : Formula {
  template <typename Root>
  static constexpr void update(const UpdateRule& rule, Root /*root_of*/, float& w, float g) {
    w -= rule.lr * (g + rule.decay * w);
  }
};

// v = m v + g; w -= lr * v, or Nesterov's w -= lr * (g + m v). g includes the decay.
struct Momentum : Formula {
  static constexpr size_t kArrays = 1;
  template <typename Root>
  static constexpr void update(const UpdateRule& rule, Root /*root_of*/, float& w, float gradient,
                               float& v) {
    if (rule.nesterov) {
      const float g = gradient + rule.decay * w;
      v = rule.momentum * v + g;
      w -= rule.lr * (g + rule.momentum * v);
    } else {
      v = rule.momentum * v + gradient + rule.decay * w;
      w -= rule.lr * v;
    }
  }
};

// Decay is added to the gradient (L2), as PyTorch's Adam does.
struct Adam : Formula {
  static constexpr size_t kArrays = 2;
  // Step size, and the root of the second correction.
  static void begin(UpdateRule& rule, uint64_t steps) {
    const double correction1 = 1.0 - std::pow(0.9, static_cast<double>(steps));
    const double correction2 = 1.0 - std::pow(0.999, static_cast<double>(steps));
    rule.lr = static_cast<float>(rule.rate / correction1);
    rule.root = static_cast<float>(std::sqrt(correction2));
  }
  template <typename Root>
  static constexpr void update(const UpdateRule& rule, Root root_of, float& w, float gradient,
                               float& m, float& v) {
    const float g = gradient + rule.decay * w;
    m = 0.9F * m + 0.1F * g;
    v = 0.999F * v + 0.001F * g * g;
    w -= rule.lr * m / (root_of(v) / rule.root + 1e-8F);
  }
};

// The momentum includes the rate.
struct Lars : Formula {
  static constexpr size_t kArrays = 1;
  static constexpr bool kTakesNorms = true;
  static constexpr float slice_rate(const UpdateRule& rule, double weights, double gradients) {
    const double trust = weights == 0 || gradients == 0
                             ? 1.0
                             : 0.001 * weights / (gradients + rule.weight_decay * weights);
    return static_cast<float>(rule.rate * trust);
  }
  template <typename Root>
  static constexpr void update(const UpdateRule& rule, Root /*root_of*/, float& w, float g,
                               float& v) {
    v = rule.momentum * v + rule.lr * (g + rule.decay * w);
    w -= v;
  }
};

}  // namespace horon::optim
