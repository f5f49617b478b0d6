#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "horon/train/flaw.h"
#include "horon/train/gradient_buckets.h"
#include "horon/train/gradient_sync.h"

namespace horon::train {
namespace {

// Gradients, statistics and scores of a shard are one array, summed by the canonical tree. The
// array is in host memory, wherever the replica is.
class ExactSync final : public GradientSync {
 public:
  ExactSync(Runtime& runtime, Replica& replica, uint64_t shards, const Accelerator& accelerator)
      : runtime_(runtime), replica_(replica), shards_(shards), accelerator_(accelerator) {
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
    if (!accelerator.is_cpu())
      device_total_ =
          accelerator.runtime->allocate(statistics_at_, DType::kF32, accelerator.device.index);
    const float* totals =
        accelerator.is_cpu() ? total_.data() : static_cast<const float*>(device_total_.view().data);
    for (size_t i = 0; i < offsets_.size(); ++i) {
      const ModelArray& one = replica.parameters()[i];
      slices_.push_back({one.name, one.data, totals + offsets_[i], one.count, one.decays});
    }
  }

  const std::vector<Slice>& slices() const override { return slices_; }

  void begin(const StepPlan& plan) override {
    if (is_torn_) refuse_torn_step();
    replica_.keep_statistics();
    mended_before_ = mended;
    std::fill(total_.begin(), total_.end(), 0.0F);
    flaws_.clear();
    score_ = {};
    samples_.clear();
    for (const StepPlan::Pass& pass : plan.passes)
      samples_.push_back(static_cast<double>(pass.samples));
    begin_pass();
  }

  // Each shard starts from the statistics at the beginning of its pass.
  void begin_shard(size_t pass, const Shard& shard) override {
    replica_.write_statistics(start_.data());
    std::fill(mine_.begin(), mine_.end(), 0.0F);
    taken_ = 0;
    shard_ = shard.number;
    weight_ = static_cast<float>(static_cast<double>(shard.samples.labels.size()) / samples_[pass]);
  }

  void ready(size_t i, const float* gradient) override {
    ++taken_;
    float* to = mine_.data() + offsets_[i];
    const uint64_t count = slices_[i].count;
    bool is_finite = true;
    if (accelerator_.is_cpu()) {
      is_finite = take_checked(to, gradient, count, false);
    } else {
      accelerator_.math->copy(to, gradient, count * sizeof(float));
      is_finite = count_flaws(to, count) == 0;
    }
    if (!is_finite) flaws_.note_gradient(slices_[i].name, count_flaws(to, count));
  }

  void end_shard(const Score& score) override {
    mended += offsets_.size() - taken_;
    if (!std::isfinite(score.loss)) flaws_.note_loss();
    float* at = mine_.data() + statistics_at_;
    for (const float value : replica_.read_statistics()) *at++ = value * weight_;
    for (const double value : {score.loss, score.top1, score.top5, score.count})
      *at++ = static_cast<float>(value);
    sum_->add(shard_, view_of(mine_));
  }

  void end_pass(size_t pass) override {
    has_sent_ = true;
    runtime_.world().all_reduce(*sum_, view_of(out_), {.name = "exact step"});
    const double planned = samples_[pass];
    const double came = out_[scores_at_ + 3];  // fewer than planned if records were corrupt
    if (came != planned && came > 0) {
      for (uint64_t i = statistics_at_; i < scores_at_; ++i)
        out_[i] *= static_cast<float>(planned / came);
    }
    replica_.write_statistics(came > 0 ? out_.data() + statistics_at_ : start_.data());
    for (uint64_t i = 0; i < statistics_at_; ++i) total_[i] += out_[i];
    const float* scores = out_.data() + scores_at_;
    score_.loss += scores[0];
    score_.top1 += scores[1];
    score_.top5 += scores[2];
    score_.count += scores[3];
    if (pass + 1 < samples_.size()) begin_pass();
  }

  StepSums finish(const Wishes& wishes) override {
    if (!accelerator_.is_cpu())
      accelerator_.math->copy(device_total_.view().data, total_.data(),
                              statistics_at_ * sizeof(float));
    std::array<double, 3> flags = {wishes.stop ? 1.0 : 0.0, wishes.end ? 1.0 : 0.0,
                                   flaws_.found() ? 1.0 : 0.0};
    runtime_.run_all_reduce("step flags", view_of(flags));
    StepSums result{score_, flags[0], flags[1], {}};
    if (flags[2] > 0) result.flaws = flaws_.gather(runtime_.world());
    has_sent_ = false;
    return result;
  }

  void abandon() override {
    is_torn_ = is_torn_ || (has_sent_ && runtime_.size() > 1);
    has_sent_ = false;
    replica_.restore_statistics();
    mended = mended_before_;
  }

 private:
  void begin_pass() {
    start_ = replica_.read_statistics();
    sum_.emplace(runtime_.world().exact_sum(count_, DType::kF32, shards_));
  }

  Runtime& runtime_;
  Replica& replica_;
  uint64_t shards_;
  Accelerator accelerator_;
  std::vector<uint64_t> offsets_;
  uint64_t statistics_at_ = 0;
  uint64_t scores_at_ = 0;
  uint64_t count_ = 0;
  std::vector<float> mine_;
  std::vector<float> out_;
  std::vector<float> total_;
  OwnedBuffer device_total_;
  std::vector<Slice> slices_;
  bool is_torn_ = false;  // other ranks may have used a pass of an abandoned step
  // State of the current step.
  uint64_t mended_before_ = 0;
  std::vector<double> samples_;  // of each pass, on all ranks
  Score score_;
  Flaws flaws_;
  bool has_sent_ = false;
  // State of the current pass.
  std::vector<float> start_;  // statistics
  std::optional<ExactSum> sum_;
  // State of the current shard.
  uint64_t shard_ = 0;
  float weight_ = 0;  // fraction of the samples of the pass
  size_t taken_ = 0;  // gradients received
};

}  // namespace

std::unique_ptr<GradientSync> make_exact_sync(Runtime& runtime, Replica& replica, uint64_t shards,
                                              const Accelerator& accelerator) {
  return std::make_unique<ExactSync>(runtime, replica, shards, accelerator);
}

}  // namespace horon::train
