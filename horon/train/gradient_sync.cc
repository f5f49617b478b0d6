#include "horon/train/gradient_sync.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "horon/base/error.h"

namespace horon::train {
namespace {

constexpr size_t kSums = 6;  // loss, top1, top5, count, stops, flawed

std::array<double, kSums> pack(const Score& score, bool stop) {
  return {score.loss,  score.top1,       score.top5,
          score.count, stop ? 1.0 : 0.0, std::isfinite(score.loss) ? 0.0 : 1.0};
}
StepSums unpack(const std::array<double, kSums>& sums) {
  return {{sums[0], sums[1], sums[2], sums[3]}, sums[4], sums[5]};
}

void add(Score& to, const Score& one) {
  to.loss += one.loss;
  to.top1 += one.top1;
  to.top5 += one.top5;
  to.count += one.count;
}

uint64_t total_of(const std::vector<ModelArray>& arrays) {
  uint64_t count = 0;
  for (const ModelArray& one : arrays) count += one.count;
  return count;
}

class FastSync final : public GradientSync {
 public:
  FastSync(Runtime& runtime, Replica& replica) : runtime_(runtime), replica_(replica) {
    // Gradients come from the last layer to the first.
    const auto& parameters = replica.parameters();
    std::vector<TensorSpec> specs;
    for (size_t i = parameters.size(); i-- > 0;) {
      TensorSpec spec;
      spec.name = parameters[i].name;
      spec.count = parameters[i].count;
      specs.push_back(spec);
    }
    TensorSpec statistics;
    statistics.name = "batch-norm statistics";
    statistics.count = total_of(replica.statistics());
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
  }

  const std::vector<Slice>& slices() const override { return slices_; }

  StepSums step(const std::vector<std::vector<Shard>>& passes, const std::vector<uint64_t>& global,
                bool stop) override {
    std::vector<Work> works;
    std::vector<uint8_t> filled(views_.size(), 0);
    std::vector<uint8_t> submitted(views_.size(), 0);
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
        add(score, replica_.train(shard.samples, divisor, [&](size_t i, const float* gradient) {
          take(i, gradient, filled[i] != 0);
          filled[i] = 1;
          if (last && std::exchange(submitted[i], 1) == 0) works.push_back(submit(i));
        }));
      }
    }

    for (size_t i = 0; i < views_.size(); ++i) {  // parameters that had no part in it
      if (filled[i] == 0) std::memset(views_[i].data, 0, views_[i].bytes());
      if (submitted[i] == 0) works.push_back(submit(i));
    }
    if (statistics_.count > 0) works.push_back(share_statistics(all > 0 ? samples / all : 0.0));
    const auto mine = pack(score, stop);
    std::memcpy(sums_.data, mine.data(), sizeof(mine));
    works.push_back(runtime_.all_reduce("step sums", sums_));
    for (const Work& work : works) work.wait();
    take_statistics();
    std::array<double, kSums> sums = {};
    std::memcpy(sums.data(), sums_.data, sizeof(sums));
    return unpack(sums);
  }

 private:
  Work submit(size_t i) { return runtime_.all_reduce(slices_[i].name, views_[i]); }

  void take(size_t i, const float* gradient, bool adds) {
    auto* to = static_cast<float*>(views_[i].data);
    if (!adds) {
      std::memcpy(to, gradient, views_[i].bytes());
      return;
    }
    for (uint64_t k = 0; k < views_[i].count; ++k) to[k] += gradient[k];
  }

  Work share_statistics(double weight) {
    auto* to = static_cast<float*>(statistics_.data);
    const auto by = static_cast<float>(weight);
    for (const ModelArray& one : replica_.statistics()) {
      for (uint64_t k = 0; k < one.count; ++k) *to++ = one.data[k] * by;
    }
    return runtime_.all_reduce("batch-norm statistics", statistics_);
  }
  void take_statistics() {
    const auto* from = static_cast<const float*>(statistics_.data);
    for (const ModelArray& one : replica_.statistics()) {
      std::copy_n(from, one.count, one.data);
      from += one.count;
    }
  }

  Runtime& runtime_;
  Replica& replica_;
  BucketMemory memory_;
  std::vector<BufferView> views_;
  BufferView statistics_;
  BufferView sums_;
  std::vector<Slice> slices_;
};

// Gradients, statistics and scores of a shard are one array, summed by the canonical tree.
class ExactSync final : public GradientSync {
 public:
  ExactSync(Runtime& runtime, Replica& replica, uint64_t shards)
      : runtime_(runtime), replica_(replica), shards_(shards) {
    uint64_t at = 0;
    for (const ModelArray& one : replica.parameters()) {
      offsets_.push_back(at);
      at += one.count;
    }
    statistics_at_ = at;
    scores_at_ = at + total_of(replica.statistics());
    count_ = scores_at_ + 4;
    mine_.resize(count_);
    out_.resize(count_);
    total_.resize(count_);
    for (size_t i = 0; i < offsets_.size(); ++i) {
      const ModelArray& one = replica.parameters()[i];
      slices_.push_back({one.name, one.data, total_.data() + offsets_[i], one.count, one.decays});
    }
  }

  const std::vector<Slice>& slices() const override { return slices_; }

  StepSums step(const std::vector<std::vector<Shard>>& passes, const std::vector<uint64_t>& global,
                bool stop) override {
    std::fill(total_.begin(), total_.end(), 0.0F);
    StepSums result;
    for (size_t pass = 0; pass < passes.size(); ++pass) {
      const std::vector<float> start = read_statistics();
      const double divisor = static_cast<double>(global[pass]) * static_cast<double>(passes.size());
      ExactSum sum = runtime_.world().exact_sum(count_, DType::kF32, shards_);
      for (const Shard& shard : passes[pass]) {
        if (shard.samples.labels.empty()) continue;
        write_statistics(start.data());
        compute(shard, divisor, static_cast<double>(global[pass]));
        sum.add(shard.number, view_of(mine_));
      }
      runtime_.world().all_reduce(sum, view_of(out_), {.name = "exact step"});
      write_statistics(out_.data() + statistics_at_);
      for (uint64_t i = 0; i < statistics_at_; ++i) total_[i] += out_[i];
      const float* scores = out_.data() + scores_at_;
      add(result.score, {scores[0], scores[1], scores[2], scores[3]});
    }
    std::array<double, 2> flags = {stop ? 1.0 : 0.0, std::isfinite(result.score.loss) ? 0.0 : 1.0};
    runtime_.run_all_reduce("step flags", view_of(flags));
    result.stops = flags[0];
    result.flawed = flags[1];
    return result;
  }

 private:
  std::vector<float> read_statistics() const {
    std::vector<float> values;
    for (const ModelArray& one : replica_.statistics())
      values.insert(values.end(), one.data, one.data + one.count);
    return values;
  }
  void write_statistics(const float* from) const {
    for (const ModelArray& one : replica_.statistics()) {
      std::copy_n(from, one.count, one.data);
      from += one.count;
    }
  }
  void compute(const Shard& shard, double divisor, double global) {
    std::fill(mine_.begin(), mine_.end(), 0.0F);
    const Score score =
        replica_.train(shard.samples, divisor, [&](size_t i, const float* gradient) {
          std::copy_n(gradient, slices_[i].count, mine_.data() + offsets_[i]);
        });
    const auto weight =
        static_cast<float>(static_cast<double>(shard.samples.labels.size()) / global);
    float* at = mine_.data() + statistics_at_;
    for (const ModelArray& one : replica_.statistics()) {
      for (uint64_t k = 0; k < one.count; ++k) *at++ = one.data[k] * weight;
    }
    for (const double value : {score.loss, score.top1, score.top5, score.count})
      *at++ = static_cast<float>(value);
  }

  Runtime& runtime_;
  Replica& replica_;
  uint64_t shards_;
  std::vector<uint64_t> offsets_;
  uint64_t statistics_at_ = 0;
  uint64_t scores_at_ = 0;
  uint64_t count_ = 0;
  std::vector<float> mine_;
  std::vector<float> out_;
  std::vector<float> total_;
  std::vector<Slice> slices_;
};

}  // namespace

std::unique_ptr<GradientSync> make_fast_sync(Runtime& runtime, Replica& replica) {
  return std::make_unique<FastSync>(runtime, replica);
}

std::unique_ptr<GradientSync> make_exact_sync(Runtime& runtime, Replica& replica, uint64_t shards) {
  return std::make_unique<ExactSync>(runtime, replica, shards);
}

}  // namespace horon::train
