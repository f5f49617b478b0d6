#include "horon/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/optim/optimizer_table.h"

namespace horon::optim {
namespace {

using Arrays = std::map<std::string, BufferView>;

uint64_t total(std::span<const Slice> slices) {
  uint64_t count = 0;
  for (const Slice& slice : slices) count += slice.count;
  return count;
}

// `rule` and the pointers are copies, so that the loop may keep them in registers.
template <typename F, size_t... K>
void update_slice(const UpdateRule rule, const Slice& slice,
                  [[maybe_unused]] const std::array<float*, sizeof...(K)> state,
                  std::index_sequence<K...> /*arrays*/) {
  float* w = slice.parameter;
  const float* g = slice.gradient;
  const uint64_t count = slice.count;
  const auto root_of = [](float x) { return std::sqrt(x); };
#pragma GCC ivdep
  for (uint64_t i = 0; i < count; ++i) F::update(rule, root_of, w[i], g[i], state[K][i]...);
}

// A row of the table in host memory.
template <typename F>
class HostOptimizer final : public Optimizer {
 public:
  HostOptimizer(const OptimizerRow<F>& row, const UpdateRule& rule, std::span<const Slice> slices)
      : row_(row), rule_(rule) {
    for (auto& array : arrays_) array.resize(total(slices));
  }
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    UpdateRule all = rule_;
    all.rate = rate;
    F::begin(all, steps);
    std::array<float*, F::kArrays> state;
    std::transform(arrays_.begin(), arrays_.end(), state.begin(),
                   [](auto& array) { return array.data(); });
    for (const Slice& slice : slices) {
      UpdateRule rule = all;
      if (!slice.decays) rule.decay = 0;
      if constexpr (F::kTakesNorms) {
        if (slice.decays) rule.lr = rate_by_norms(rule, slice);
      }
      update_slice<F>(rule, slice, state, std::make_index_sequence<F::kArrays>());
      for (float*& array : state) array += slice.count;
    }
  }
  Arrays state() override {
    Arrays all;
    for (size_t i = 0; i < arrays_.size(); ++i)
      all[std::string(row_.state[i])] = view_of(arrays_[i]);
    return all;
  }

 private:
  static float rate_by_norms(const UpdateRule& rule, const Slice& slice) {
    double weights = 0;
    double gradients = 0;
    for (uint64_t i = 0; i < slice.count; ++i) {
      weights += static_cast<double>(slice.parameter[i]) * slice.parameter[i];
      gradients += static_cast<double>(slice.gradient[i]) * slice.gradient[i];
    }
    return F::slice_rate(rule, std::sqrt(weights), std::sqrt(gradients));
  }
  const OptimizerRow<F>& row_;
  UpdateRule rule_;
  std::array<std::vector<float>, F::kArrays> arrays_;
};

// A row of the table on a GPU: all slices in one kernel.
template <typename F>
class DeviceOptimizer final : public Optimizer {
 public:
  DeviceOptimizer(const OptimizerRow<F>& row, const UpdateRule& rule, std::span<const Slice> slices,
                  const Accelerator& accelerator)
      : row_(row), rule_(rule), accelerator_(accelerator) {
    const uint64_t count = total(slices);
    for (OwnedBuffer& array : arrays_) {
      array = accelerator.runtime->allocate(count, DType::kF32, accelerator.device.index);
      accelerator.math->clear(array.view().data, count * sizeof(float));
    }
  }
  void step(std::span<const Slice> slices, double rate) override {
    ++steps;
    keep_table(slices);
    UpdateRule rule = rule_;
    rule.rate = rate;
    F::begin(rule, steps);
    std::array<float*, F::kArrays> state;
    std::transform(arrays_.begin(), arrays_.end(), state.begin(),
                   [](auto& array) { return static_cast<float*>(array.view().data); });
    accelerator_.math->update(*table_, rule, state);
  }
  Arrays state() override {
    Arrays all;
    for (size_t i = 0; i < arrays_.size(); ++i) all[std::string(row_.state[i])] = arrays_[i].view();
    return all;
  }

 private:
  // Gradients move when the session is renewed.
  void keep_table(std::span<const Slice> slices) {
    if (table_ && slices.data() == slices_.data() && slices.size() == slices_.size()) return;
    std::vector<DeviceMath::Segment> segments;
    uint64_t first = 0;
    for (const Slice& slice : slices) {
      segments.push_back({slice.parameter, slice.gradient, slice.count, first, slice.decays});
      first += slice.count;
    }
    table_ = accelerator_.math->make_table(segments);
    slices_ = slices;
  }

  const OptimizerRow<F>& row_;
  UpdateRule rule_;
  Accelerator accelerator_;
  std::span<const Slice> slices_;  // that the table was made from
  std::unique_ptr<DeviceMath::Table> table_;
  std::array<OwnedBuffer, F::kArrays> arrays_;
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

// Of the settings only those that the row reads.
template <typename F>
UpdateRule rule_of(const OptimizerRow<F>& row, const OptimizerOptions& options) {
  const std::vector<std::string> settings = split(row.reads, ' ');
  const auto reads = [&](const char* name) {
    return std::find(settings.begin(), settings.end(), name) != settings.end();
  };
  UpdateRule rule;
  rule.optimizer = options.optimizer;
  if (reads("momentum")) rule.momentum = static_cast<float>(options.momentum);
  if (reads("nesterov")) rule.nesterov = options.nesterov;
  if (reads("weight_decay")) {
    rule.decay = static_cast<float>(options.weight_decay);
    rule.weight_decay = options.weight_decay;
  }
  return rule;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          std::span<const Slice> slices,
                                          const Accelerator& accelerator) {
  std::unique_ptr<Optimizer> made;
  for_each_optimizer([&]<typename F>(const OptimizerRow<F>& row, OptimizerKind kind) {
    if (kind != options.optimizer) return;
    const UpdateRule rule = rule_of(row, options);
    if (accelerator.is_cpu()) {
      made = std::make_unique<HostOptimizer<F>>(row, rule, slices);
    } else {
      made = std::make_unique<DeviceOptimizer<F>>(row, rule, slices, accelerator);
    }
  });
  require(made != nullptr, "unknown optimizer");
  return made;
}

std::unique_ptr<Optimizer> make_batch_gradients(std::unique_ptr<Optimizer> inner, uint64_t batches,
                                                std::span<const Slice> slices,
                                                const Accelerator& accelerator) {
  require(inner != nullptr, "batch_gradients: the optimizer is null");
  require(batches > 0, "batch_gradients: at least one batch");
  require(accelerator.is_cpu(),
          "batch_gradients works in host memory; use backward_passes_per_step");
  return std::make_unique<BatchGradients>(std::move(inner), batches, slices);
}

}  // namespace horon::optim
