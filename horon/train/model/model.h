#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "horon/train/replica.h"

namespace horon::train {

// A network: pictures (N x C x H x W) to logits (N x classes).
class Model : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor x) = 0;
  // The SUM over samples; the trainer divides by the global number. Cross entropy unless a model
  // has its own.
  virtual torch::Tensor loss(const torch::Tensor& logits, const torch::Tensor& labels,
                             double label_smoothing) const;
};

// What dropout draws its masks from; set by the replica for the thread that runs the model.
struct DropoutKey {
  uint64_t seed = 0;
  uint64_t step = 0;
  std::span<const uint64_t> samples;
};
DropoutKey& dropout_key();

// Zeros each value with probability `rate`, by (seed, step, sample, layer) alone.
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
// Set by the replica for the thread that runs the model; null: each rank by itself.
Communicator*& norm_communicator();

// A user's own model under a name of its own; before training begins.
void register_model(const std::string& name, ModelMaker maker);
std::shared_ptr<Model> make_model(const std::string& name, const ModelShape& shape);

void add_residual_models();
void add_small_models();

}  // namespace horon::train
