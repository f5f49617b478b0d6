#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "horon/runtime/session.h"

// For programs with a training loop of their own: these lines make it train on many ranks, each on
// its part of every batch (docs/cpp.md).
//
//   horon::Session session;
//   horon::broadcast_parameters(session, *model);
//   horon::DistributedOptimizer optimizer(session, std::move(adam), model->named_parameters());
//
// and a fourth, before the model is evaluated or saved, if it has batch norm:
//
//   horon::average_statistics(session, *model);
namespace horon::train {

using NamedTensors = torch::OrderedDict<std::string, torch::Tensor>;

// Owns an optimizer and gives it gradients that are averaged over all ranks: there is no way past
// it. Gradients lie in buckets that are reduced while backward() still runs; step() waits for them.
// All ranks must call backward() and step() equally often. Parameters on a GPU are staged through
// host memory. Buffers (batch norm's running statistics) are not touched and drift apart, rank by
// rank: average_statistics() below.
class DistributedOptimizer {
 public:
  struct Options {
    uint64_t backward_passes_per_step = 1;  // batch_gradients: gradients of so many are averaged
    bool averages = true;                   // over ranks and passes; else summed
    std::string codec = {};                 // what travels instead of f32, see codec/codec.h
  };
  DistributedOptimizer(Session& session, std::unique_ptr<torch::optim::Optimizer> inner,
                       const NamedTensors& parameters, const Options& options);
  DistributedOptimizer(Session& session, std::unique_ptr<torch::optim::Optimizer> inner,
                       const NamedTensors& parameters)
      : DistributedOptimizer(session, std::move(inner), parameters, Options{}) {}
  ~DistributedOptimizer();

  // Zeros gradients, and puts them (back) into their buckets.
  void zero_grad();
  // Waits for the gradients of all ranks, if that was not done, and updates the parameters.
  void step();
  // Only waits: to clip or look at gradients before step().
  void synchronize();

  // How many were taken; codecs that go by the step are told. Set it when a run goes on, and then
  // give session.runtime() what codecs have kept (Runtime::save_codec_state, restore_codec_state):
  // both belong beside the weights.
  uint64_t steps() const;
  void set_steps(uint64_t steps);

  // To read and to set learning rates; its step() is called by ours.
  torch::optim::Optimizer& inner();
  // Gradients that were not in their bucket when they were ready, and were copied there.
  uint64_t mended() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Values of `root` on every rank: parameters and buffers. All ranks.
void broadcast_parameters(Session& session, torch::nn::Module& module, int root = 0);
void broadcast_parameters(Session& session, const NamedTensors& tensors, int root = 0);

// Each floating-point buffer of the module and of what is inside it (batch norm's running_mean and
// running_var) becomes its average over all ranks, equal on all of them to the last bit. Left
// alone: parameters, buffers of integers and bools (num_batches_tracked), undefined ones (batch
// norm without statistics). Call it on all ranks before rank 0 evaluates or saves. Running
// variances are averaged as they are: how far the ranks' means lie apart is not added. UsageError
// for complex buffers and others of types that cannot be sent.
void average_statistics(Session& session, torch::nn::Module& module);

// Its learning rates and its state (SGD, Adam, AdamW, RMSprop, Adagrad). All ranks. UsageError for
// others.
void broadcast_optimizer_state(Session& session, torch::optim::Optimizer& optimizer, int root = 0);

}  // namespace horon::train
