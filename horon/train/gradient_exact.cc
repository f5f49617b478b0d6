#include <algorithm>
#include <array>
#include <cmath>

#include "horon/train/flaw.h"
#include "horon/train/gradient_sync.h"

namespace horon::train {
namespace {

// Gradients, statistics and scores of a shard are one array, summed by the canonical tree. The
// array is in host memory, wherever the replica is.
class ExactSync final : public GradientSync {
 public:
  ExactSync(Runtime& runtime, Replica& replica, uint64_t shards, const Accelerator& place)
      : runtime_(runtime), replica_(replica), shards_(shards), place_(place) {
    uint64_t at = 0;
    for (const ModelArray& one : replica.parameters()) {
      offsets_.push_back(at);
      at += one.count;
    }
    statistics_at_ = at;
    for (const ModelArray& one : replica.statistics()) at += one.count;
    scores_at_ = at;
    count_ = scores_at_ + 4;
    mine_.resize(count_);
    out_.resize(count_);
    total_.resize(count_);
    if (!place.is_cpu())
      device_total_ = place.runtime->allocate(statistics_at_, DType::kF32, place.device.index);
    const float* totals =
        place.is_cpu() ? total_.data() : static_cast<const float*>(device_total_.view().data);
    for (size_t i = 0; i < offsets_.size(); ++i) {
      const ModelArray& one = replica.parameters()[i];
      slices_.push_back({one.name, one.data, totals + offsets_[i], one.count, one.decays});
    }
  }

  const std::vector<Slice>& slices() const override { return slices_; }

  StepSums step(const std::vector<std::vector<Shard>>& passes, const std::vector<uint64_t>& global,
                const Wishes& wishes) override {
    std::fill(total_.begin(), total_.end(), 0.0F);
    flaws_.clear();
    StepSums result;
    for (size_t pass = 0; pass < passes.size(); ++pass)
      add_pass(passes[pass], static_cast<double>(global[pass]), passes.size(), result.score);
    if (!place_.is_cpu())
      place_.math->copy(device_total_.view().data, total_.data(), statistics_at_ * sizeof(float));
    std::array<double, 3> flags = {wishes.stop ? 1.0 : 0.0, wishes.end ? 1.0 : 0.0,
                                   flaws_.found() ? 1.0 : 0.0};
    runtime_.run_all_reduce("step flags", view_of(flags));
    result.stops = flags[0];
    result.ends = flags[1];
    if (flags[2] > 0) result.flaws = flaws_.share(runtime_.world());
    return result;
  }

 private:
  void add_pass(const std::vector<Shard>& shards, double global, size_t passes, Score& score) {
    const std::vector<float> start = replica_.read_statistics();
    ExactSum sum = runtime_.world().exact_sum(count_, DType::kF32, shards_);
    for (const Shard& shard : shards) {
      if (shard.samples.labels.empty()) continue;
      replica_.write_statistics(start.data());
      compute(shard, global * static_cast<double>(passes), global);
      sum.add(shard.number, view_of(mine_));
    }
    try {
      runtime_.world().all_reduce(sum, view_of(out_), {.name = "exact step"});
    } catch (...) {  // no step is half taken
      replica_.write_statistics(start.data());
      throw;
    }
    const double came = out_[scores_at_ + 3];  // bad records may have left fewer than planned
    if (came != global && came > 0) {
      for (uint64_t i = statistics_at_; i < scores_at_; ++i)
        out_[i] *= static_cast<float>(global / came);
    }
    replica_.write_statistics(came > 0 ? out_.data() + statistics_at_ : start.data());
    for (uint64_t i = 0; i < statistics_at_; ++i) total_[i] += out_[i];
    const float* scores = out_.data() + scores_at_;
    score.loss += scores[0];
    score.top1 += scores[1];
    score.top5 += scores[2];
    score.count += scores[3];
  }

  void take(size_t i, const float* gradient) {
    float* to = mine_.data() + offsets_[i];
    const uint64_t count = slices_[i].count;
    bool is_finite = true;
    if (place_.is_cpu()) {
      is_finite = take_checked(to, gradient, count, false);
    } else {
      place_.math->copy(to, gradient, count * sizeof(float));
      is_finite = count_flaws(to, count) == 0;
    }
    if (!is_finite) flaws_.note_gradient(slices_[i].name, count_flaws(to, count));
  }

  void compute(const Shard& shard, double divisor, double global) {
    std::fill(mine_.begin(), mine_.end(), 0.0F);
    size_t taken = 0;
    const Score score =
        replica_.train(shard.samples, divisor, [&](size_t i, const float* gradient) {
          take(i, gradient);
          ++taken;
        });
    mended += offsets_.size() - taken;
    if (!std::isfinite(score.loss)) flaws_.note_loss();
    const auto weight =
        static_cast<float>(static_cast<double>(shard.samples.labels.size()) / global);
    float* at = mine_.data() + statistics_at_;
    for (const float value : replica_.read_statistics()) *at++ = value * weight;
    for (const double value : {score.loss, score.top1, score.top5, score.count})
      *at++ = static_cast<float>(value);
  }

  Runtime& runtime_;
  Replica& replica_;
  uint64_t shards_;
  Accelerator place_;
  std::vector<uint64_t> offsets_;
  uint64_t statistics_at_ = 0;
  uint64_t scores_at_ = 0;
  uint64_t count_ = 0;
  std::vector<float> mine_;
  std::vector<float> out_;
  std::vector<float> total_;
  OwnedBuffer device_total_;
  std::vector<Slice> slices_;
  Flaws flaws_;
};

}  // namespace

std::unique_ptr<GradientSync> make_exact_sync(Runtime& runtime, Replica& replica, uint64_t shards,
                                              const Accelerator& place) {
  return std::make_unique<ExactSync>(runtime, replica, shards, place);
}

}  // namespace horon::train
