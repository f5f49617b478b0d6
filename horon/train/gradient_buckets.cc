#include "horon/train/gradient_buckets.h"

#include <exception>
#include <utility>

#include "horon/base/error.h"

namespace horon::train {

void refuse_torn_step() {
  throw Error(
      "a step failed after some of its gradients had been sent; to repeat it, reconnect "
      "the ranks and share gradients through a new object");
}

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

void GradientBuckets::begin() {
  if (is_torn_) refuse_torn_step();
  submitted_.assign(size(), 0);
}

void GradientBuckets::submit(size_t i, std::function<void()> ready, std::optional<uint64_t> step) {
  if (is_submitted(i)) return;
  const bool is_alone = runtime_.size() == 1 && options_.codec.empty() && options_.postscale == 1.0;
  const bool stays = is_alone && !view(i).device.is_cpu();
  NamedOptions options = options_;
  options.ready = std::move(ready);
  options.step = step;
  if (!stays) works_.push_back(runtime_.all_reduce(name(i), view(i), options));
  submitted_[i] = 1;
}

void GradientBuckets::submit_other(size_t i) {
  works_.push_back(runtime_.all_reduce(others_[i].name, other(i)));
}

void GradientBuckets::wait() {
  std::exception_ptr first;
  for (const Work& work : std::exchange(works_, {})) {
    try {
      work.wait();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void GradientBuckets::abandon() {
  if (works_.empty()) return;
  for (const TensorSpec& spec : gradients_) runtime_.withdraw(spec.name);
  for (const TensorSpec& spec : others_) runtime_.withdraw(spec.name);
  is_torn_ = runtime_.size() > 1;
  if (is_torn_) return works_.clear();
  try {
    wait();                          // for what has begun: no other rank can delay it
  } catch (const std::exception&) {  // nobody needs its result
  }
}

}  // namespace horon::train
