#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "horon/runtime/runtime.h"

namespace horon::train {

// Refuses to repeat a step of which other ranks may have used a part.
[[noreturn]] void refuse_torn_step();

// A replica's gradients in the buckets of a runtime: where each one is, which were submitted, what
// is in flight. Used by the trainer and by DistributedOptimizer. Owns the memory; the runtime
// outlives it. One thread at a time; all ranks construct it alike.
class GradientBuckets {
 public:
  // `gradients` in the order of the parameters; they become ready in reverse order, `others` after
  // them. `options` apply to every gradient.
  GradientBuckets(Runtime& runtime, std::vector<TensorSpec> gradients,
                  std::vector<TensorSpec> others = {}, NamedOptions options = {});

  size_t size() const { return gradients_.size(); }
  const std::string& name(size_t i) const { return gradients_[i].name; }
  BufferView view(size_t i) const { return memory_.views[size() - 1 - i]; }
  BufferView other(size_t i) const { return memory_.views[size() + i]; }
  // Complete buckets, including gaps between gradients.
  const std::vector<OwnedBuffer>& memory() const { return memory_.buckets; }

  // Begins a step: nothing is submitted. Does not wait for operations in flight; wait() does. Error
  // if abandon() left operations that other ranks may have used.
  void begin();
  // Sums gradient i over all ranks, once per step. A lone rank's gradient on a GPU is left as it
  // is, without waiting for the device. `ready`: called on the thread that reduces, before it
  // reads. `step`: for codecs that depend on it.
  void submit(size_t i, std::function<void()> ready = {}, std::optional<uint64_t> step = {});
  bool is_submitted(size_t i) const { return submitted_[i] != 0; }
  void submit_other(size_t i);
  // Waits until everything submitted has ended. Throws the error of the first operation that
  // failed.
  void wait();
  // Gives up the step: withdraws what has not begun. A lone rank may then begin again. On several
  // ranks, if anything had been submitted, the others may have received part of it: begin() fails
  // until the ranks have reconnected and made other buckets. Never blocks on other ranks.
  void abandon();

 private:
  Runtime& runtime_;
  std::vector<TensorSpec> gradients_;
  std::vector<TensorSpec> others_;
  NamedOptions options_;
  BucketMemory memory_;
  std::vector<uint8_t> submitted_;
  std::vector<Work> works_;
  bool is_torn_ = false;  // other ranks may have received part of an abandoned step
};

}  // namespace horon::train
