#include "horon/train/gradient_sync.h"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "horon/train/flaw.h"

namespace horon::train {
namespace {

constexpr size_t kSums = 7;  // loss, top1, top5, count, stops, ends, flawed

void add(Score& to, const Score& one) {
  to.loss += one.loss;
  to.top1 += one.top1;
  to.top5 += one.top5;
  to.count += one.count;
}

class FastSync final : public GradientSync {
 public:
  FastSync(Runtime& runtime, Replica& replica, const Accelerator& place)
      : runtime_(runtime), replica_(replica), place_(place) {
    // Gradients come from the last layer to the first.
    const auto& parameters = replica.parameters();
    std::vector<TensorSpec> specs;
    for (size_t i = parameters.size(); i-- > 0;) {
      TensorSpec spec;
      spec.name = parameters[i].name;
      spec.count = parameters[i].count;
      spec.device = place.device;
      specs.push_back(spec);
    }
    TensorSpec statistics;
    statistics.name = "batch-norm statistics";
    for (const ModelArray& one : replica.statistics()) statistics.count += one.count;
    if (statistics.count > 0) specs.push_back(statistics);
    TensorSpec sums;
    sums.name = "step sums";
    sums.count = kSums;
    sums.dtype = DType::kF64;
    specs.push_back(sums);
    memory_ = runtime.allocate_buckets(specs);
    views_.resize(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      views_[i] = memory_.views[parameters.size() - 1 - i];
      slices_.push_back({parameters[i].name, parameters[i].data,
                         static_cast<const float*>(views_[i].data), parameters[i].count,
                         parameters[i].decays});
    }
    if (statistics.count > 0) statistics_ = memory_.views[parameters.size()];
    sums_ = memory_.views.back();
    if (!place.is_cpu())
      flaw_counts_ = place.runtime->allocate(parameters.size(), DType::kI32, place.device.index);
  }

  const std::vector<Slice>& slices() const override { return slices_; }

  StepSums step(const std::vector<std::vector<Shard>>& passes, const std::vector<uint64_t>& global,
                const Wishes& wishes) override {
    begin();
    Score score;
    double samples = 0;
    double all = 0;
    for (size_t pass = 0; pass < passes.size(); ++pass) {
      const bool last = pass + 1 == passes.size();
      all += static_cast<double>(global[pass]);
      const double divisor = static_cast<double>(global[pass]) * static_cast<double>(passes.size());
      for (const Shard& shard : passes[pass]) {
        if (shard.samples.labels.empty()) continue;
        samples += static_cast<double>(shard.samples.labels.size());
        add(score, replica_.train(
                       shard.samples, divisor,
                       [&](size_t i, const float* gradient) {
                         take(i, gradient);
                         if (last) offer(i);
                       },
                       [&] { submit_ready(); }));
      }
    }
    mend();
    submit_ready();
    read_flaws();
    if (!std::isfinite(score.loss)) flaws_.note_loss();
    if (statistics_.count > 0 && shares()) share_statistics(all > 0 ? samples / all : 0.0);
    return finish(score, wishes, all);
  }

 private:
  // A lone rank on a GPU has nothing to share, and no reason to wait for the device.
  bool shares() const { return place_.is_cpu() || runtime_.size() > 1; }

  void begin() {
    works_.clear();
    ready_.clear();
    flaws_.clear();
    filled_.assign(views_.size(), 0);
    offered_.assign(views_.size(), 0);
    if (!place_.is_cpu()) place_.math->clear(flaw_counts_.view().data, flaw_counts_.view().bytes());
  }

  void take(size_t i, const float* gradient) {
    const bool adds = std::exchange(filled_[i], 1) != 0;
    auto* to = static_cast<float*>(views_[i].data);
    if (!place_.is_cpu()) {
      auto* flaws = static_cast<uint32_t*>(flaw_counts_.view().data) + i;
      place_.math->take(to, gradient, views_[i].count, adds, flaws);
    } else if (!take_checked(to, gradient, views_[i].count, adds)) {
      flaws_.note_gradient(slices_[i].name, count_flaws(gradient, views_[i].count));
    }
  }

  void offer(size_t i) {
    if (std::exchange(offered_[i], 1) != 0 || !shares()) return;
    if (place_.is_cpu()) {
      works_.push_back(runtime_.all_reduce(slices_[i].name, views_[i]));
    } else {
      ready_.emplace_back(i, place_.math->mark());
    }
  }

  // The host is ahead of the GPU: as the device comes to each gradient, it is handed on.
  void submit_ready() {
    for (const auto& [i, mark] : ready_) {
      place_.math->wait(mark);
      works_.push_back(runtime_.all_reduce(slices_[i].name, views_[i]));
    }
    ready_.clear();
  }

  void mend() {
    for (size_t i = 0; i < views_.size(); ++i) {  // parameters that had no part in it
      if (filled_[i] == 0) {
        ++mended;
        if (place_.is_cpu()) {
          std::memset(views_[i].data, 0, views_[i].bytes());
        } else {
          place_.math->clear(views_[i].data, views_[i].bytes());
        }
      }
      offer(i);
    }
  }

  void read_flaws() {
    if (place_.is_cpu()) return;
    std::vector<uint32_t> counts(views_.size());
    place_.math->copy(counts.data(), flaw_counts_.view().data, counts.size() * sizeof(uint32_t));
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) flaws_.note_gradient(slices_[i].name, counts[i]);
    }
  }

  void share_statistics(double weight) {
    const std::vector<float> mine = replica_.read_statistics();
    auto* to = static_cast<float*>(statistics_.data);
    const auto by = static_cast<float>(weight);
    for (size_t i = 0; i < mine.size(); ++i) to[i] = mine[i] * by;
    works_.push_back(runtime_.all_reduce("batch-norm statistics", statistics_));
  }

  // `planned`: samples that were to be read; bad records may have left fewer.
  StepSums finish(const Score& score, const Wishes& wishes, double planned) {
    std::array<double, kSums> sums = {score.loss,
                                      score.top1,
                                      score.top5,
                                      score.count,
                                      wishes.stop ? 1.0 : 0.0,
                                      wishes.end ? 1.0 : 0.0,
                                      flaws_.found() ? 1.0 : 0.0};
    std::memcpy(sums_.data, sums.data(), sizeof(sums));
    works_.push_back(runtime_.all_reduce("step sums", sums_));
    for (const Work& work : works_) work.wait();
    std::memcpy(sums.data(), sums_.data, sizeof(sums));
    if (statistics_.count > 0 && shares() && sums[3] > 0) {
      auto* values = static_cast<float*>(statistics_.data);
      if (sums[3] != planned) {
        for (uint64_t i = 0; i < statistics_.count; ++i)
          values[i] *= static_cast<float>(planned / sums[3]);
      }
      replica_.write_statistics(values);
    }
    StepSums all{{sums[0], sums[1], sums[2], sums[3]}, sums[4], sums[5], {}};
    if (sums[6] > 0) all.flaws = flaws_.share(runtime_.world());
    return all;
  }

  Runtime& runtime_;
  Replica& replica_;
  Accelerator place_;
  BucketMemory memory_;
  std::vector<BufferView> views_;  // of each parameter
  BufferView statistics_ = {};
  BufferView sums_ = {};
  OwnedBuffer flaw_counts_;  // on the device, of each parameter
  std::vector<Slice> slices_;
  // Of the step that runs.
  std::vector<Work> works_;
  std::vector<std::pair<size_t, std::shared_ptr<void>>> ready_;
  std::vector<uint8_t> filled_;
  std::vector<uint8_t> offered_;
  Flaws flaws_;
};

}  // namespace

std::unique_ptr<GradientSync> make_fast_sync(Runtime& runtime, Replica& replica,
                                             const Accelerator& place) {
  return std::make_unique<FastSync>(runtime, replica, place);
}

std::unique_ptr<GradientSync> make_sync(const TrainConfig& config, Runtime& runtime,
                                        Replica& replica, const Accelerator& place) {
  replica.norm_over(config.sync_batch_norm && runtime.size() > 1 ? &runtime.world() : nullptr);
  return config.reduction == Reduction::kExact
             ? make_exact_sync(runtime, replica, config.logical_shards, place)
             : make_fast_sync(runtime, replica, place);
}

}  // namespace horon::train
