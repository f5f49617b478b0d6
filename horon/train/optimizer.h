#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/train/config.h"

namespace horon::train {

// One parameter: where it and its gradient lie, and how it is treated.
struct Slice {
  std::string name;
  float* parameter = nullptr;
  const float* gradient = nullptr;
  uint64_t count = 0;
  bool decays = true;  // weight decay, and LARS's scaling, apply
};

// Updates parameters in place. Flat loops, one pass; the same bits for the same input. State is a
// set of named arrays, one float an element of all slices in their order.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step(std::span<const Slice> slices, double rate) = 0;
  // Arrays that a checkpoint must hold; their contents may be replaced.
  virtual std::map<std::string, std::vector<float>*> state() = 0;
  uint64_t steps = 0;  // that were taken
};

std::unique_ptr<Optimizer> make_optimizer(const TrainConfig& config, std::span<const Slice> slices);

}  // namespace horon::train
