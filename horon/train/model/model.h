#pragma once

#include <torch/torch.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/train/model/shape.h"

namespace horon {
class Communicator;
}

namespace horon::train {

// A network: maps images (N x C x H x W) to logits (N x classes). Used by one thread at a time.
//
//   struct Linear : Model {
//     explicit Linear(const ModelShape& shape) { ... register_module("fc", fc) ... }
//     torch::Tensor forward(torch::Tensor x) override { return fc(x.flatten(1)); }
//   };
//   register_model("linear", [](const auto& shape) { return std::make_shared<Linear>(shape); });
class Model : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor x) = 0;
  // The SUM of the losses of the samples; the trainer divides by the global number of samples.
  // Cross entropy unless overridden.
  virtual torch::Tensor loss(const torch::Tensor& logits, const torch::Tensor& labels,
                             double label_smoothing) const;
};

// What dropout derives its masks from. The replica sets it for the thread that runs the model.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  std::span<const uint64_t> samples;
};
DropoutKey& dropout_key();

// Zeroes each value with probability `rate`, determined only by (seed, step, sample, layer).
class CounterDropout : public torch::nn::Module {
 public:
  CounterDropout(double rate, uint32_t layer) : rate_(rate), layer_(layer) {}
  torch::Tensor forward(const torch::Tensor& x) const;

 private:
  double rate_;
  uint32_t layer_;
};

// Batch norm that can take its statistics over the samples of all ranks (--sync_batch_norm).
class NormImpl : public torch::nn::BatchNorm2dImpl {
 public:
  explicit NormImpl(int64_t channels) : BatchNorm2dImpl(channels) {}
  torch::Tensor forward(const torch::Tensor& x);
};
TORCH_MODULE(Norm);
// Set by the replica for the thread that runs the model; null: each rank uses its own samples.
Communicator*& norm_communicator();

// Registers a user's model under a new name. Call it before training begins.
void register_model(const std::string& name, ModelMaker maker);
std::shared_ptr<Model> make_model(const std::string& name, const ModelShape& shape);

void add_residual_models();
void add_small_models();

}  // namespace horon::train
