#include "horon/train/optimizer.h"

#include <cmath>

#include "horon/base/error.h"

namespace horon::train {
namespace {

uint64_t total(std::span<const Slice> slices) {
  uint64_t count = 0;
  for (const Slice& slice : slices) count += slice.count;
  return count;
}

// w -= lr * (g + decay * w)
class Sgd final : public Optimizer {
 public:
  explicit Sgd(const TrainConfig& config) : decay_(static_cast<float>(config.weight_decay)) {}
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    const auto lr = static_cast<float>(rate);
    for (const Slice& slice : slices) {
      const float decay = slice.decays ? decay_ : 0.0F;
      float* w = slice.parameter;
      const float* g = slice.gradient;
#pragma GCC ivdep
      for (uint64_t i = 0; i < slice.count; ++i) w[i] -= lr * (g[i] + decay * w[i]);
    }
  }
  std::map<std::string, std::vector<float>*> state() override { return {}; }

 private:
  float decay_;
};

// v = m v + g; w -= lr * v, or lr * (g + m v) with Nesterov. g includes the decay.
class Momentum final : public Optimizer {
 public:
  Momentum(const TrainConfig& config, std::span<const Slice> slices)
      : momentum_(static_cast<float>(config.momentum)),
        decay_(static_cast<float>(config.weight_decay)),
        nesterov_(config.nesterov),
        velocity_(total(slices)) {}
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    const auto lr = static_cast<float>(rate);
    const float m = momentum_;
    float* v = velocity_.data();
    for (const Slice& slice : slices) {
      const float decay = slice.decays ? decay_ : 0.0F;
      float* w = slice.parameter;
      const float* gradient = slice.gradient;
      const uint64_t count = slice.count;
      if (nesterov_) {
#pragma GCC ivdep
        for (uint64_t i = 0; i < count; ++i) {
          const float g = gradient[i] + decay * w[i];
          v[i] = m * v[i] + g;
          w[i] -= lr * (g + m * v[i]);
        }
      } else {
#pragma GCC ivdep
        for (uint64_t i = 0; i < count; ++i) {
          v[i] = m * v[i] + gradient[i] + decay * w[i];
          w[i] -= lr * v[i];
        }
      }
      v += count;
    }
  }
  std::map<std::string, std::vector<float>*> state() override { return {{"velocity", &velocity_}}; }

 private:
  float momentum_;
  float decay_;
  bool nesterov_;
  std::vector<float> velocity_;
};

// Adam; decay is added to the gradient (L2), as PyTorch's Adam does.
class Adam final : public Optimizer {
 public:
  Adam(const TrainConfig& config, std::span<const Slice> slices)
      : decay_(static_cast<float>(config.weight_decay)),
        first_(total(slices)),
        second_(total(slices)) {}
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    const double correction1 = 1.0 - std::pow(0.9, static_cast<double>(steps));
    const double correction2 = 1.0 - std::pow(0.999, static_cast<double>(steps));
    const auto size = static_cast<float>(rate / correction1);
    const auto root = static_cast<float>(std::sqrt(correction2));
    float* m = first_.data();
    float* v = second_.data();
    for (const Slice& slice : slices) {
      const float decay = slice.decays ? decay_ : 0.0F;
      float* w = slice.parameter;
#pragma GCC ivdep
      for (uint64_t i = 0; i < slice.count; ++i) {
        const float g = slice.gradient[i] + decay * w[i];
        m[i] = 0.9F * m[i] + 0.1F * g;
        v[i] = 0.999F * v[i] + 0.001F * g * g;
        w[i] -= size * m[i] / (std::sqrt(v[i]) / root + 1e-8F);
      }
      m += slice.count;
      v += slice.count;
    }
  }
  std::map<std::string, std::vector<float>*> state() override {
    return {{"first", &first_}, {"second", &second_}};
  }

 private:
  float decay_;
  std::vector<float> first_;
  std::vector<float> second_;
};

// Each layer's rate is scaled by 0.001 |w| / (|g| + decay |w|); the rate is inside the momentum.
// Slices that do not decay take the plain rate.
class Lars final : public Optimizer {
 public:
  Lars(const TrainConfig& config, std::span<const Slice> slices)
      : momentum_(static_cast<float>(config.momentum)),
        decay_(config.weight_decay),
        velocity_(total(slices)) {}
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    float* v = velocity_.data();
    for (const Slice& slice : slices) {
      float* w = slice.parameter;
      const double decay = slice.decays ? decay_ : 0.0;
      const double ratio = slice.decays ? trust(slice) : 1.0;
      const auto lr = static_cast<float>(rate * ratio);
      const auto by = static_cast<float>(decay);
#pragma GCC ivdep
      for (uint64_t i = 0; i < slice.count; ++i) {
        v[i] = momentum_ * v[i] + lr * (slice.gradient[i] + by * w[i]);
        w[i] -= v[i];
      }
      v += slice.count;
    }
  }
  std::map<std::string, std::vector<float>*> state() override { return {{"velocity", &velocity_}}; }

 private:
  double trust(const Slice& slice) const {
    double weights = 0;
    double gradients = 0;
    for (uint64_t i = 0; i < slice.count; ++i) {
      weights += static_cast<double>(slice.parameter[i]) * slice.parameter[i];
      gradients += static_cast<double>(slice.gradient[i]) * slice.gradient[i];
    }
    if (weights == 0 || gradients == 0) return 1.0;
    return 0.001 * std::sqrt(weights) / (std::sqrt(gradients) + decay_ * std::sqrt(weights));
  }
  float momentum_;
  double decay_;
  std::vector<float> velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config,
                                          std::span<const Slice> slices) {
  if (config.optimizer == "sgd") return std::make_unique<Sgd>(config);
  if (config.optimizer == "momentum") return std::make_unique<Momentum>(config, slices);
  if (config.optimizer == "adam") return std::make_unique<Adam>(config, slices);
  if (config.optimizer == "lars") return std::make_unique<Lars>(config, slices);
  throw UsageError("unknown optimizer '" + config.optimizer +
                   "'; there are: sgd, momentum, adam, lars");
}

}  // namespace horon::train
