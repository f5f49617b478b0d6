#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/runtime/runtime.h"
#include "horon/train/optimizer.h"
#include "horon/train/replica.h"

namespace horon::train {

// What one step of all ranks together came to.
struct StepSums {
  Score score;
  double stops = 0;                // ranks that got a signal
  double ends = 0;                 // ranks whose callbacks want to end
  std::vector<std::string> flaws;  // what was not finite, and on which rank, before the reduction
};

// What a rank asks for with its next step.
struct Wishes {
  bool stop = false;
  bool end = false;
};

// One rank's part of a batch: a logical shard.
struct Shard {
  uint64_t number = 0;  // of the whole batch
  Replica::Samples samples;
};

// Computes gradients of this rank's shards and sums them over all ranks; statistics of batch norm
// are averaged by the number of samples. After step() every rank has the same gradients (slices())
// and the same statistics. Called by all ranks.
class GradientSync {
 public:
  virtual ~GradientSync() = default;
  virtual const std::vector<Slice>& slices() const = 0;
  // `passes`: the shards of each backward pass. `global`: samples of each pass on all ranks.
  virtual StepSums step(const std::vector<std::vector<Shard>>& passes,
                        const std::vector<uint64_t>& global, const Wishes& wishes) = 0;
  // Gradients that never came (the parameter had no part in a step) and were taken as zero.
  uint64_t mended = 0;
};

// Buckets are reduced while the backward pass still runs; the same bits from run to run. Autograd
// owns a gradient until its hook takes it into its bucket: measured faster than views in the
// bucket.
std::unique_ptr<GradientSync> make_fast_sync(Runtime& runtime, Replica& replica,
                                             const Accelerator& place = {});
// The canonical tree over logical shards: the same bits on any number of ranks.
std::unique_ptr<GradientSync> make_exact_sync(Runtime& runtime, Replica& replica, uint64_t shards,
                                              const Accelerator& place = {});
// The one that the settings name. The replica takes batch norm's statistics over these ranks, if
// they say so. When the ranks have met anew, another one is made: replica, optimizer and their
// numbers stay, the slices are others.
std::unique_ptr<GradientSync> make_sync(const TrainConfig& config, Runtime& runtime,
                                        Replica& replica, const Accelerator& place = {});

}  // namespace horon::train
