#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/optim/device_math.h"

namespace horon::optim {

// One parameter: where it and its gradient are, and how it is treated. Does not own them.
struct Slice {
  std::string name;
  float* parameter = nullptr;
  const float* gradient = nullptr;
  uint64_t count = 0;
  bool decays = true;  // weight decay and LARS's scaling apply
};

// Updates parameters in place, in one pass. The same input gives the same bits, on the CPU and
// (except for LARS's norms) on a GPU. The state is a set of named f32 arrays in the memory of the
// slices, usually with one element for each element of all slices, in their order. Not thread-safe.
// Derive from this class for an optimizer of your own, which may update in any way:
//
//   struct SignDescent : Optimizer {
//     void step(std::span<const Slice> slices, double rate) override { ++steps; ... }
//     std::map<std::string, BufferView> state() override { return {}; }
//   };
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // The slices may have moved since the last call, but their number and sizes are the same.
  virtual void step(std::span<const Slice> slices, double rate) = 0;
  // The arrays that a checkpoint must contain. The optimizer owns them; callers may overwrite them.
  virtual std::map<std::string, BufferView> state() = 0;
  uint64_t steps = 0;  // taken so far
};

// Settings of an optimizer, under their names in the table of settings.
struct OptimizerOptions {
  OptimizerKind optimizer = OptimizerKind::kSgd;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

// Makes the optimizer of the table (optimizer_table.h) that `options` name, with its state in the
// memory of `accelerator`. UsageError: the table has no such optimizer.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          std::span<const Slice> slices,
                                          const Accelerator& accelerator = {});

// Wrapper: averages the gradients of `batches` steps, then `inner` takes one step with the last
// rate. Parameters do not change in between. Host memory only (UsageError): on a GPU use the
// trainer's backward_passes_per_step.
std::unique_ptr<Optimizer> make_batch_gradients(std::unique_ptr<Optimizer> inner, uint64_t batches,
                                                std::span<const Slice> slices,
                                                const Accelerator& accelerator = {});

// Makes an optimizer for these slices. A user's own one, for Ingredients::optimizer:
//
//   [](std::span<const Slice> slices, const Accelerator&) {
//     return std::make_unique<SignDescent>(); }
using OptimizerMaker = std::function<std::unique_ptr<Optimizer>(std::span<const Slice> slices,
                                                                const Accelerator& accelerator)>;

}  // namespace horon::optim
