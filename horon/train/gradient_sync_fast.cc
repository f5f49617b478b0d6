// Buckets of gradients, reduced while the backward pass still runs.
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "horon/train/flaw.h"
#include "horon/train/gradient_buckets.h"
#include "horon/train/gradient_sync.h"

namespace horon::train {
namespace {

constexpr size_t kSums = 7;  // loss, top1, top5, count, stops, ends, flawed

void add(Score& to, const Score& one) {
  to.loss += one.loss;
  to.top1 += one.top1;
  to.top5 += one.top5;
  to.count += one.count;
}

std::vector<TensorSpec> gradient_specs(const Replica& replica, const Device& device) {
  std::vector<TensorSpec> specs;
  for (const ModelArray& one : replica.parameters()) {
    TensorSpec spec;
    spec.name = one.name;
    spec.count = one.count;
    spec.device = device;
    specs.push_back(spec);
  }
  return specs;
}

// Sums of the step and, if there are any, batch norm's statistics.
std::vector<TensorSpec> other_specs(const Replica& replica) {
  TensorSpec sums;
  sums.name = "step sums";
  sums.count = kSums;
  sums.dtype = DType::kF64;
  TensorSpec statistics;
  statistics.name = "batch-norm statistics";
  for (const ModelArray& one : replica.statistics()) statistics.count += one.count;
  if (statistics.count == 0) return {sums};
  return {statistics, sums};
}

class FastSync final : public GradientSync {
 public:
  FastSync(Runtime& runtime, Replica& replica, const Accelerator& accelerator,
           const NamedOptions& how)
      : runtime_(runtime),
        replica_(replica),
        accelerator_(accelerator),
        encodes_(!how.codec.empty()),
        buckets_(runtime, gradient_specs(replica, accelerator.device), other_specs(replica), how) {
    const auto& parameters = replica.parameters();
    for (const ModelArray& one : parameters)  // a codec that cannot be is an error now
      runtime.declared_spec(one.name, {nullptr, one.count, DType::kF32, accelerator.device}, how);
    for (size_t i = 0; i < parameters.size(); ++i)
      slices_.push_back({parameters[i].name, parameters[i].data,
                         static_cast<const float*>(buckets_.view(i).data), parameters[i].count,
                         parameters[i].decays});
    has_statistics_ = !replica.statistics().empty();
    if (!accelerator.is_cpu())
      flaw_counts_ =
          accelerator.runtime->allocate(parameters.size(), DType::kI32, accelerator.device.index);
  }

  const std::vector<Slice>& slices() const override { return slices_; }

  void begin(const StepPlan& plan) override {
    buckets_.begin();
    replica_.keep_statistics();
    mended_before_ = mended;
    flaws_.clear();
    taken_.assign(buckets_.size(), 0);
    passes_ = plan.passes.size();
    step_ = plan.step;
    score_ = {};
    planned_ = mine_ = 0;
    for (const StepPlan::Pass& pass : plan.passes) planned_ += static_cast<double>(pass.samples);
    if (!accelerator_.is_cpu())
      accelerator_.math->clear(flaw_counts_.view().data, flaw_counts_.view().bytes());
  }

  void begin_shard(size_t pass, const Shard& shard) override {
    is_last_ = pass + 1 == passes_;
    mine_ += static_cast<double>(shard.samples.labels.size());
  }

  void ready(size_t i, const float* gradient) override {
    const bool adds = std::exchange(taken_[i], 1) != 0;
    const BufferView to = buckets_.view(i);
    auto* values = static_cast<float*>(to.data);
    if (!accelerator_.is_cpu()) {
      auto* flaws = static_cast<uint32_t*>(flaw_counts_.view().data) + i;
      accelerator_.math->take(values, gradient, to.count, adds, flaws);
    } else if (!take_checked(values, gradient, to.count, adds)) {
      flaws_.note_gradient(buckets_.name(i), count_flaws(gradient, to.count));
    }
    if (is_last_) submit(i);
  }

  void end_shard(const Score& score) override {
    add(score_, score);
    if (!std::isfinite(score.loss)) flaws_.note_loss();
  }

  void end_pass(size_t) override {}

  StepSums finish(const Wishes& wishes) override {
    mend();
    read_flaws();
    if (shares_statistics()) send_statistics();
    std::array<double, kSums> sums = {score_.loss,
                                      score_.top1,
                                      score_.top5,
                                      score_.count,
                                      wishes.stop ? 1.0 : 0.0,
                                      wishes.end ? 1.0 : 0.0,
                                      flaws_.found() ? 1.0 : 0.0};
    const size_t last = has_statistics_ ? 1 : 0;
    std::memcpy(buckets_.other(last).data, sums.data(), sizeof(sums));
    buckets_.submit_other(last);
    buckets_.wait();
    std::memcpy(sums.data(), buckets_.other(last).data, sizeof(sums));
    if (shares_statistics() && sums[3] > 0) take_statistics(sums[3]);
    StepSums all{{sums[0], sums[1], sums[2], sums[3]}, sums[4], sums[5], {}};
    if (sums[6] > 0) all.flaws = flaws_.gather(runtime_.world());
    return all;
  }

  void abandon() override {
    buckets_.abandon();
    replica_.restore_statistics();
    mended = mended_before_;
  }

  bool keeps_codec_state() const override { return encodes_; }
  std::vector<CodecStates> save_codec_states() override {
    return gather_codec_states(runtime_.world(), runtime_.save_codec_state());
  }
  void restore_codec_states(std::span<const CodecStates> kept) override {
    runtime_.restore_codec_state(scatter_codec_states(runtime_.world(), kept));
  }

 private:
  // A lone rank on a GPU reduces nothing, so it need not wait for the device.
  bool shares() const { return accelerator_.is_cpu() || runtime_.size() > 1 || encodes_; }
  bool shares_statistics() const { return has_statistics_ && shares(); }

  // The host runs ahead of the GPU: the reducing thread waits until the gradient is computed.
  void submit(size_t i) {
    if (!shares()) return;
    const std::optional<uint64_t> step = encodes_ ? std::optional(step_) : std::nullopt;
    if (accelerator_.is_cpu()) return buckets_.submit(i, {}, step);
    buckets_.submit(
        i, [math = accelerator_.math, mark = accelerator_.math->mark()] { math->wait(mark); },
        step);
  }

  // Zeroes the gradients of parameters that the loss did not use (all, on a rank without samples).
  void mend() {
    for (size_t i = 0; i < buckets_.size(); ++i) {
      if (taken_[i] == 0) {
        ++mended;
        const BufferView view = buckets_.view(i);
        if (accelerator_.is_cpu()) {
          std::memset(view.data, 0, view.bytes());
        } else {
          accelerator_.math->clear(view.data, view.bytes());
        }
      }
      if (!buckets_.is_submitted(i)) submit(i);
    }
  }

  void read_flaws() {
    if (accelerator_.is_cpu()) return;
    std::vector<uint32_t> counts(buckets_.size());
    accelerator_.math->copy(counts.data(), flaw_counts_.view().data,
                            counts.size() * sizeof(uint32_t));
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) flaws_.note_gradient(buckets_.name(i), counts[i]);
    }
  }

  void send_statistics() {
    const std::vector<float> mine = replica_.read_statistics();
    auto* to = static_cast<float*>(buckets_.other(0).data);
    const auto weight = static_cast<float>(planned_ > 0 ? mine_ / planned_ : 0.0);
    for (size_t i = 0; i < mine.size(); ++i) to[i] = mine[i] * weight;
    buckets_.submit_other(0);
  }

  // `came`: bad records may have left fewer samples than planned.
  void take_statistics(double came) {
    const BufferView view = buckets_.other(0);
    auto* values = static_cast<float*>(view.data);
    if (came != planned_) {
      for (uint64_t i = 0; i < view.count; ++i) values[i] *= static_cast<float>(planned_ / came);
    }
    replica_.write_statistics(values);
  }

  Runtime& runtime_;
  Replica& replica_;
  Accelerator accelerator_;
  bool encodes_;
  GradientBuckets buckets_;
  bool has_statistics_ = false;
  OwnedBuffer flaw_counts_;  // on the device, of each parameter
  std::vector<Slice> slices_;
  // State of the current step.
  uint64_t mended_before_ = 0;
  size_t passes_ = 0;
  uint64_t step_ = 0;
  bool is_last_ = false;        // pass
  double planned_ = 0;          // samples of all ranks
  double mine_ = 0;             // samples of this rank
  std::vector<uint8_t> taken_;  // gradients received
  Score score_;
  Flaws flaws_;
};

}  // namespace

std::unique_ptr<GradientSync> make_fast_sync(Runtime& runtime, Replica& replica,
                                             const Accelerator& accelerator,
                                             const std::string& codec) {
  NamedOptions how;
  if (codec != "none") how.codec = codec;
  return std::make_unique<FastSync>(runtime, replica, accelerator, how);
}

}  // namespace horon::train
