#include "horon/train/optimizer.h"

#include <array>
#include <cmath>
#include <utility>

#include "horon/base/error.h"

namespace horon::train {
namespace {

using Arrays = std::map<std::string, BufferView>;

uint64_t total(std::span<const Slice> slices) {
  uint64_t count = 0;
  for (const Slice& slice : slices) count += slice.count;
  return count;
}

class Sgd final : public Optimizer {
 public:
  explicit Sgd(const UpdateRule& rule) : rule_(rule) {}
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    for (const Slice& slice : slices) {
      UpdateRule rule = rule_;
      rule.lr = static_cast<float>(rate);
      if (!slice.decays) rule.decay = 0;
      float* w = slice.parameter;
      const float* g = slice.gradient;
#pragma GCC ivdep
      for (uint64_t i = 0; i < slice.count; ++i) sgd_update(rule, w[i], g[i]);
    }
  }
  Arrays state() override { return {}; }

 private:
  UpdateRule rule_;
};

class Momentum final : public Optimizer {
 public:
  Momentum(const UpdateRule& rule, std::span<const Slice> slices)
      : rule_(rule), velocity_(total(slices)) {}
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    float* v = velocity_.data();
    for (const Slice& slice : slices) {
      UpdateRule rule = rule_;
      rule.lr = static_cast<float>(rate);
      if (!slice.decays) rule.decay = 0;
      float* w = slice.parameter;
      const float* g = slice.gradient;
      const uint64_t count = slice.count;
      if (rule.kind == UpdateKind::kNesterov) {
#pragma GCC ivdep
        for (uint64_t i = 0; i < count; ++i) nesterov_update(rule, w[i], v[i], g[i]);
      } else {
#pragma GCC ivdep
        for (uint64_t i = 0; i < count; ++i) momentum_update(rule, w[i], v[i], g[i]);
      }
      v += count;
    }
  }
  Arrays state() override { return {{"velocity", view_of(velocity_)}}; }

 private:
  UpdateRule rule_;
  std::vector<float> velocity_;
};

// The step's size and the root of its second correction.
UpdateRule adam_rule(UpdateRule rule, uint64_t steps, double rate) {
  const double correction1 = 1.0 - std::pow(0.9, static_cast<double>(steps));
  const double correction2 = 1.0 - std::pow(0.999, static_cast<double>(steps));
  rule.lr = static_cast<float>(rate / correction1);
  rule.root = static_cast<float>(std::sqrt(correction2));
  return rule;
}

class Adam final : public Optimizer {
 public:
  Adam(const UpdateRule& rule, std::span<const Slice> slices)
      : rule_(rule), first_(total(slices)), second_(total(slices)) {}
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    float* m = first_.data();
    float* v = second_.data();
    for (const Slice& slice : slices) {
      UpdateRule rule = adam_rule(rule_, steps, rate);
      if (!slice.decays) rule.decay = 0;
      float* w = slice.parameter;
      const float* g = slice.gradient;
#pragma GCC ivdep
      for (uint64_t i = 0; i < slice.count; ++i)
        adam_update(rule, w[i], m[i], v[i], g[i], [](float x) { return std::sqrt(x); });
      m += slice.count;
      v += slice.count;
    }
  }
  Arrays state() override { return {{"first", view_of(first_)}, {"second", view_of(second_)}}; }

 private:
  UpdateRule rule_;
  std::vector<float> first_;
  std::vector<float> second_;
};

// Slices that do not decay take the plain rate.
class Lars final : public Optimizer {
 public:
  Lars(const UpdateRule& rule, std::span<const Slice> slices)
      : rule_(rule), velocity_(total(slices)) {}
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    float* v = velocity_.data();
    for (const Slice& slice : slices) {
      UpdateRule rule = rule_;
      rule.lr = static_cast<float>(rate * (slice.decays ? trust(slice) : 1.0));
      if (!slice.decays) rule.decay = 0;
      float* w = slice.parameter;
      const float* g = slice.gradient;
#pragma GCC ivdep
      for (uint64_t i = 0; i < slice.count; ++i) lars_update(rule, w[i], v[i], g[i]);
      v += slice.count;
    }
  }
  Arrays state() override { return {{"velocity", view_of(velocity_)}}; }

 private:
  double trust(const Slice& slice) const {
    double weights = 0;
    double gradients = 0;
    for (uint64_t i = 0; i < slice.count; ++i) {
      weights += static_cast<double>(slice.parameter[i]) * slice.parameter[i];
      gradients += static_cast<double>(slice.gradient[i]) * slice.gradient[i];
    }
    return lars_trust(std::sqrt(weights), std::sqrt(gradients), rule_.weight_decay);
  }
  UpdateRule rule_;
  std::vector<float> velocity_;
};

// Any of them, on a GPU: all slices in one kernel.
class DeviceOptimizer final : public Optimizer {
 public:
  DeviceOptimizer(const UpdateRule& rule, std::span<const Slice> slices, const Accelerator& place)
      : rule_(rule), place_(place) {
    const uint64_t first = total(slices);
    const std::vector<const char*> names =
        rule.kind == UpdateKind::kSgd    ? std::vector<const char*>{}
        : rule.kind == UpdateKind::kAdam ? std::vector<const char*>{"first", "second"}
                                         : std::vector<const char*>{"velocity"};
    for (const char* name : names) {
      arrays_.push_back({name, place.runtime->allocate(first, DType::kF32, place.device.index)});
      place.math->clear(arrays_.back().second.view().data, first * sizeof(float));
    }
  }
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    keep_table(slices);
    UpdateRule rule = rule_;
    rule.rate = rate;
    rule.lr = static_cast<float>(rate);
    if (rule.kind == UpdateKind::kAdam) rule = adam_rule(rule_, steps, rate);
    const auto array = [&](size_t i) {
      return i < arrays_.size() ? static_cast<float*>(arrays_[i].second.view().data) : nullptr;
    };
    place_.math->update(*table_, rule, array(0), array(1));
  }
  Arrays state() override {
    Arrays all;
    for (const auto& [name, memory] : arrays_) all[name] = memory.view();
    return all;
  }

 private:
  // Where gradients lie changes when the ranks meet anew.
  void keep_table(std::span<const Slice> slices) {
    if (table_ && slices.data() == slices_.data() && slices.size() == slices_.size()) return;
    std::vector<DeviceMath::Segment> segments;
    uint64_t first = 0;
    for (const Slice& slice : slices) {
      segments.push_back({slice.parameter, slice.gradient, slice.count, first, slice.decays});
      first += slice.count;
    }
    table_ = place_.math->make_table(segments);
    slices_ = slices;
  }

  UpdateRule rule_;
  Accelerator place_;
  std::span<const Slice> slices_;  // that the table was made of
  std::unique_ptr<DeviceMath::Table> table_;
  std::vector<std::pair<std::string, OwnedBuffer>> arrays_;
};

class BatchGradients final : public Optimizer {
 public:
  BatchGradients(std::unique_ptr<Optimizer> inner, uint64_t batches, std::span<const Slice> slices)
      : inner_(std::move(inner)), batches_(batches), sums_(total(slices)) {}
  void step(std::span<const Slice> slices, double rate) override {
    float* sum = sums_.data();
    for (const Slice& slice : slices) {
#pragma GCC ivdep
      for (uint64_t i = 0; i < slice.count; ++i) sum[i] += slice.gradient[i];
      sum += slice.count;
    }
    waiting_[0] += 1;
    if (waiting_[0] < static_cast<float>(batches_)) return;
    std::vector<Slice> means(slices.begin(), slices.end());
    sum = sums_.data();
    for (Slice& slice : means) {
      slice.gradient = sum;
      for (uint64_t i = 0; i < slice.count; ++i) sum[i] /= static_cast<float>(batches_);
      sum += slice.count;
    }
    inner_->steps = steps++;
    inner_->step(means, rate);
    std::fill(sums_.begin(), sums_.end(), 0.0F);
    waiting_[0] = 0;
  }
  Arrays state() override {
    Arrays all = inner_->state();
    all["batch_gradients.sum"] = view_of(sums_);
    all["batch_gradients.waiting"] = view_of(waiting_);
    return all;
  }

 private:
  std::unique_ptr<Optimizer> inner_;
  uint64_t batches_;
  std::vector<float> sums_;
  std::array<float, 1> waiting_ = {};
};

UpdateRule rule_of(const TrainConfig& config) {
  UpdateRule rule;
  rule.decay = static_cast<float>(config.weight_decay);
  rule.weight_decay = config.weight_decay;
  rule.momentum = static_cast<float>(config.momentum);
  switch (config.optimizer) {
    case OptimizerKind::kSgd:
      rule.kind = UpdateKind::kSgd;
      break;
    case OptimizerKind::kMomentum:
      rule.kind = config.nesterov ? UpdateKind::kNesterov : UpdateKind::kMomentum;
      break;
    case OptimizerKind::kAdam:
      rule.kind = UpdateKind::kAdam;
      break;
    case OptimizerKind::kLars:
      rule.kind = UpdateKind::kLars;
      break;
  }
  return rule;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, std::span<const Slice> slices,
                                          const Accelerator& place) {
  const UpdateRule rule = rule_of(config);
  if (!place.is_cpu()) return std::make_unique<DeviceOptimizer>(rule, slices, place);
  if (rule.kind == UpdateKind::kSgd) return std::make_unique<Sgd>(rule);
  if (rule.kind == UpdateKind::kAdam) return std::make_unique<Adam>(rule, slices);
  if (rule.kind == UpdateKind::kLars) return std::make_unique<Lars>(rule, slices);
  return std::make_unique<Momentum>(rule, slices);
}

std::unique_ptr<Optimizer> make_batch_gradients(std::unique_ptr<Optimizer> inner, uint64_t batches,
                                                std::span<const Slice> slices,
                                                const Accelerator& place) {
  require(inner != nullptr, "batch_gradients: there is no optimizer inside");
  require(batches > 0, "batch_gradients: at least one batch");
  require(place.is_cpu(), "batch_gradients works in host memory; use backward_passes_per_step");
  return std::make_unique<BatchGradients>(std::move(inner), batches, slices);
}

}  // namespace horon::train
