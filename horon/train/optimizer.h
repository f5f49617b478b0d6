#pragma once

#include "horon/optim/optimizer.h"
#include "horon/train/config.h"

// The optimizers of horon/optim, under the namespace that programs use.
namespace horon::train {

using optim::Accelerator;
using optim::DeviceMath;
using optim::make_batch_gradients;
using optim::open_accelerator;
using optim::Optimizer;
using optim::OptimizerMaker;
using optim::Slice;

// The optimizer that the settings name.
std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, std::span<const Slice> slices,
                                          const Accelerator& accelerator = {});

}  // namespace horon::train
