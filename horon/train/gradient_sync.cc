#include "horon/train/gradient_sync.h"

#include "horon/base/error.h"

namespace horon::train {

std::unique_ptr<GradientSync> make_sync(const TrainConfig& config, Runtime& runtime,
                                        Replica& replica, const Accelerator& accelerator,
                                        const std::string& codec) {
  const bool is_exact = config.reduction == Reduction::kExact;
  require(!is_exact || codec.empty(),
          "codec " + codec + ": gradients that are summed exactly are not compressed");
  replica.norm_over(config.sync_batch_norm && runtime.size() > 1 ? &runtime.world() : nullptr);
  return is_exact ? make_exact_sync(runtime, replica, config.logical_shards, accelerator)
                  : make_fast_sync(runtime, replica, accelerator, codec);
}

}  // namespace horon::train
