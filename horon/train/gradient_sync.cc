#include "horon/train/gradient_sync.h"

namespace horon::train {

std::unique_ptr<GradientSync> make_sync(const TrainConfig& config, Runtime& runtime,
                                        Replica& replica, const Accelerator& accelerator) {
  replica.norm_over(config.sync_batch_norm && runtime.size() > 1 ? &runtime.world() : nullptr);
  return config.reduction == Reduction::kExact
             ? make_exact_sync(runtime, replica, config.logical_shards, accelerator)
             : make_fast_sync(runtime, replica, accelerator);
}

}  // namespace horon::train
