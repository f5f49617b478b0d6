#pragma once

#include <cstdint>

// One element of each optimizer's update, for the CPU's loops and the GPU's kernels alike: compiled
// without contraction, both give the same bits.
namespace horon::train {

enum class UpdateKind : uint8_t { kSgd, kMomentum, kNesterov, kAdam, kLars };

// What all elements of one step have in common. lr and decay are those of one slice.
struct UpdateRule {
  UpdateKind kind = UpdateKind::kSgd;
  float lr = 0;
  float decay = 0;
  float momentum = 0;
  float root = 1;   // Adam: square root of the second correction
  double rate = 0;  // LARS: before each layer's own factor
  double weight_decay = 0;
};

// w -= lr * (g + decay * w)
constexpr void sgd_update(const UpdateRule& rule, float& w, float g) {
  w -= rule.lr * (g + rule.decay * w);
}

// v = m v + g; w -= lr * v. g includes the decay.
constexpr void momentum_update(const UpdateRule& rule, float& w, float& v, float g) {
  v = rule.momentum * v + g + rule.decay * w;
  w -= rule.lr * v;
}

// v = m v + g; w -= lr * (g + m v)
constexpr void nesterov_update(const UpdateRule& rule, float& w, float& v, float gradient) {
  const float g = gradient + rule.decay * w;
  v = rule.momentum * v + g;
  w -= rule.lr * (g + rule.momentum * v);
}

// Decay is added to the gradient (L2), as PyTorch's Adam does. `root_of`: the device's square root.
template <typename Root>
constexpr void adam_update(const UpdateRule& rule, float& w, float& m, float& v, float gradient,
                           Root root_of) {
  const float g = gradient + rule.decay * w;
  m = 0.9F * m + 0.1F * g;
  v = 0.999F * v + 0.001F * g * g;
  w -= rule.lr * m / (root_of(v) / rule.root + 1e-8F);
}

// The rate is inside the momentum.
constexpr void lars_update(const UpdateRule& rule, float& w, float& v, float g) {
  v = rule.momentum * v + rule.lr * (g + rule.decay * w);
  w -= v;
}

// A layer's factor, of the norms of its weights and gradients.
constexpr double lars_trust(double weights, double gradients, double decay) {
  if (weights == 0 || gradients == 0) return 1.0;
  return 0.001 * weights / (gradients + decay * weights);
}

}  // namespace horon::train
