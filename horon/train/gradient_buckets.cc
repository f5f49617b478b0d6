#include "horon/train/gradient_buckets.h"

#include <utility>

namespace horon::train {

GradientBuckets::GradientBuckets(Runtime& runtime, std::vector<TensorSpec> gradients,
                                 std::vector<TensorSpec> others, NamedOptions options)
    : runtime_(runtime),
      gradients_(std::move(gradients)),
      others_(std::move(others)),
      options_(std::move(options)),
      submitted_(gradients_.size()) {
  std::vector<TensorSpec> specs(gradients_.rbegin(), gradients_.rend());
  for (TensorSpec& spec : specs) {
    spec.op = options_.op;
    spec.codec = options_.codec;
    spec.postscale = options_.postscale;
  }
  specs.insert(specs.end(), others_.begin(), others_.end());
  memory_ = runtime.allocate_buckets(specs);
}

void GradientBuckets::begin() { submitted_.assign(size(), 0); }

void GradientBuckets::submit(size_t i, std::function<void()> ready, std::optional<uint64_t> step) {
  if (std::exchange(submitted_[i], 1) != 0) return;
  const bool is_alone = runtime_.size() == 1 && options_.codec.empty() && options_.postscale == 1.0;
  if (is_alone && !view(i).device.is_cpu()) return;
  NamedOptions options = options_;
  options.ready = std::move(ready);
  options.step = step;
  works_.push_back(runtime_.all_reduce(name(i), view(i), options));
}

void GradientBuckets::submit_other(size_t i) {
  works_.push_back(runtime_.all_reduce(others_[i].name, other(i)));
}

void GradientBuckets::wait() {
  const std::vector<Work> works = std::exchange(works_, {});
  for (const Work& work : works) work.wait();
}

}  // namespace horon::train
