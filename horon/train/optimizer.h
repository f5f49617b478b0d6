#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/train/config.h"
#include "horon/train/device_math.h"

namespace horon::train {

// One parameter: where it and its gradient lie, and how it is treated.
struct Slice {
  std::string name;
  float* parameter = nullptr;
  const float* gradient = nullptr;
  uint64_t count = 0;
  bool decays = true;  // weight decay, and LARS's scaling, apply
};

// Updates parameters in place. One pass; the same bits for the same input, on the CPU and (but for
// LARS's norms) on a GPU. State is a set of named f32 arrays, mostly one element for each of all
// slices in their order, where the slices are.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step(std::span<const Slice> slices, double rate) = 0;
  // Arrays that a checkpoint must hold; their contents may be replaced.
  virtual std::map<std::string, BufferView> state() = 0;
  uint64_t steps = 0;  // that were taken
};

// The one that the settings name.
std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, std::span<const Slice> slices,
                                          const Accelerator& place = {});

// Wrapper: the gradients of `batches` steps are averaged, then `inner` takes one step of its own
// with the last rate. Between, parameters stay as they are.
// Host memory only (UsageError): on a GPU the trainer's backward_passes_per_step does it.
std::unique_ptr<Optimizer> make_batch_gradients(std::unique_ptr<Optimizer> inner, uint64_t batches,
                                                std::span<const Slice> slices,
                                                const Accelerator& place = {});

using OptimizerMaker = std::function<std::unique_ptr<Optimizer>(std::span<const Slice> slices,
                                                                const Accelerator& place)>;

}  // namespace horon::train
