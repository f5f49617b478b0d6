#include "horon/train/optimizer.h"

namespace horon::train {

std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, std::span<const Slice> slices,
                                          const Accelerator& accelerator) {
  return optim::make_optimizer({.optimizer = config.optimizer,
                                .momentum = config.momentum,
                                .nesterov = config.nesterov,
                                .weight_decay = config.weight_decay},
                               slices, accelerator);
}

}  // namespace horon::train
