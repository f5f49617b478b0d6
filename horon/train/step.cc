#include "horon/train/step.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "horon/train/fault.h"

namespace horon::train {
namespace {

// Abandons the step unless it is kept.
class Torn {
 public:
  explicit Torn(GradientSync& sync) : sync_(&sync) {}
  ~Torn() {
    if (sync_ == nullptr) return;
    try {
      sync_->abandon();
    } catch (const std::exception&) {  // the caller gets the error that ended the step
    }
  }
  Torn(const Torn&) = delete;
  Torn& operator=(const Torn&) = delete;
  void keep() { sync_ = nullptr; }

 private:
  GradientSync* sync_;
};

}  // namespace

StepSums compute_gradients(Replica& replica, GradientSync& sync, const StepPlan& plan,
                           const Wishes& wishes) {
  sync.begin(plan);
  Torn torn(sync);
  for (size_t pass = 0; pass < plan.passes.size(); ++pass) {
    for (const Shard& shard : plan.passes[pass].shards) {
      sync.begin_shard(pass, shard);
      replica.forward(shard.samples, [&](size_t i) { sync.need(i); });
      replica.backward(plan.divisor(pass),
                       [&](size_t i, const float* gradient) { sync.ready(i, gradient); });
      sync.end_shard(replica.score());
    }
    sync.end_pass(pass);
  }
  StepSums sums = sync.finish(wishes);
  torn.keep();
  return sums;
}

void TrainStep::run(Moment& moment) {
  const auto tell = [&](void (Callback::*what)(Moment&)) {
    for (const auto& one : parts_.callbacks) (one.get()->*what)(moment);
  };
  moment.epoch = epoch();
  tell(&Callback::on_step_begin);

  if (!input_) input_ = load(moment.rank, moment.ranks);
  const Input& input = *input_;
  const Wishes wishes{parts_.stop.stop_requested(), moment.wants_end};
  moment.sums = compute_gradients(parts_.replica, parts_.sync, input.plan, wishes);

  {
    Torn torn(parts_.sync);  // until the update
    moment.skips = false;
    tell(&Callback::on_gradients);  // are they finite?
    if (!moment.skips) {
      parts_.sync.update(parts_.optimizer, moment.rate);
      torn.keep();
    }
  }

  const Input used = *std::exchange(input_, std::nullopt);
  RunState& state = parts_.state;
  moment.ends_epoch = used.after.epoch != state.position.epoch;
  state.position = used.after;
  ++state.step;
  if (is_flipped(moment.rank, state.step) && parts_.accelerator.is_cpu())
    parts_.replica.parameters()[0].data[0] *= 2;
  moment.epoch = epoch();
  moment.loss = moment.sums.score.loss / std::max(moment.sums.score.count, 1.0);
  moment.result.train_loss = moment.loss;
  moment.result.interrupted = moment.sums.stops > 0;
  moment.is_last = parts_.length.is_over(state.step, state.position) || moment.sums.ends > 0 ||
                   moment.result.interrupted;
  tell(&Callback::on_step_end);
}

// As many batches as a step accumulates; fewer at the end of the last epoch.
TrainStep::Input TrainStep::load(int rank, int ranks) {
  Input input;
  input.after = parts_.state.position;
  for (uint64_t pass = 0; pass < parts_.config.backward_passes_per_step; ++pass) {
    auto batch = parts_.input.next();
    if (!batch) break;
    input.after = batch->after;
    input.batches.push_back(*std::move(batch));
  }
  input.plan.step = parts_.state.step;
  for (const Batch& batch : input.batches) input.plan.passes.push_back(pass_of(batch, rank, ranks));
  return input;
}

StepPlan::Pass TrainStep::pass_of(const Batch& batch, int rank, int ranks) const {
  const uint64_t step = parts_.state.step;
  const uint64_t parts =
      parts_.batching.shards == 0 ? static_cast<uint64_t>(ranks) : parts_.batching.shards;
  uint64_t number = cut(parts, static_cast<uint64_t>(ranks), static_cast<uint64_t>(rank)).first;
  const uint64_t each = batch.count() == 0 ? 0 : batch.pixels.count / batch.count();
  auto* pixels = static_cast<float*>(batch.pixels.data);
  if (is_poisoned(rank, step + 1) && parts_.accelerator.is_cpu() && batch.count() > 0)
    pixels[0] = std::numeric_limits<float>::quiet_NaN();
  StepPlan::Pass pass;
  pass.samples = batch.global_count;
  uint64_t at = 0;
  for (const uint64_t size : batch.shard_sizes) {
    const Replica::Samples samples{pixels + at * each, std::span(batch.labels).subspan(at, size),
                                   std::span(batch.samples).subspan(at, size), step};
    if (size > 0) pass.shards.push_back({number, samples});
    ++number;
    at += size;
  }
  return pass;
}

double TrainStep::epoch() const {
  const Position& position = parts_.state.position;
  return static_cast<double>(position.epoch) +
         static_cast<double>(position.next) /
             static_cast<double>(std::max<uint64_t>(parts_.batching.samples, 1));
}

}  // namespace horon::train
