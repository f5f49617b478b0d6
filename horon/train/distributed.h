#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "horon/runtime/session.h"

// For programs with their own training loop: these lines make it train on many ranks, each on its
// part of every batch (docs/cpp.md).
//
//   horon::Session session;
//   horon::broadcast_parameters(session, *model);
//   horon::DistributedOptimizer optimizer(session, std::move(adam), model->named_parameters());
//
// If the model has batch norm, add a fourth line before it is evaluated or saved:
//
//   horon::average_statistics(session, *model);
namespace horon::train {

using NamedTensors = torch::OrderedDict<std::string, torch::Tensor>;

// Owns an optimizer and gives it gradients averaged over all ranks. The wrapped optimizer is
// stepped only through this class.
//
//   loss.backward();   // gradients are reduced while it runs
//   optimizer.step();  // waits for them, then updates the parameters
//
// Gradients lie in buckets. All ranks must call backward() and step() equally often, each rank from
// one thread. The session must outlive the optimizer. If the session has the device
// (SessionOptions::device, from open_cuda_runtime()), gradients on a GPU stay there until they are
// reduced; otherwise they are copied to host memory after backward(). Buffers (batch norm's running
// statistics) are not changed and drift apart between ranks: see average_statistics() below. Errors
// as Runtime's.
class DistributedOptimizer {
 public:
  struct Options {
    uint64_t backward_passes_per_step =
        1;                   // gradients averaged over this many backward passes (batch_gradients)
    bool averages = true;    // over ranks and passes; false: summed
    std::string codec = {};  // compresses transfers; empty: f32. See codec/codec.h
  };
  DistributedOptimizer(Session& session, std::unique_ptr<torch::optim::Optimizer> inner,
                       const NamedTensors& parameters, const Options& options);
  DistributedOptimizer(Session& session, std::unique_ptr<torch::optim::Optimizer> inner,
                       const NamedTensors& parameters)
      : DistributedOptimizer(session, std::move(inner), parameters, Options{}) {}
  ~DistributedOptimizer();

  // Sets gradients to zero and puts them (back) into their buckets. To repeat a step that failed,
  // every rank calls it; a rank that failed alone must not go on: the others may have its
  // gradients.
  void zero_grad();
  // Waits for the gradients of all ranks, unless synchronize() did, and updates the parameters.
  void step();
  // Waits for the gradients of all ranks, to clip or read them before step().
  void synchronize();

  // The number of steps taken; codecs that depend on it use it. When a run is resumed, set it
  // first, then restore the codec state in session.runtime() (Runtime::save_codec_state,
  // restore_codec_state). Save both with the weights.
  uint64_t steps() const;
  void set_steps(uint64_t steps);

  // For reading and setting learning rates; do not call its step().
  torch::optim::Optimizer& inner();
  // Gradients that were ready outside their bucket and had to be copied there.
  uint64_t mended() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Copies the parameters and buffers of rank `root` to every rank. All ranks.
void broadcast_parameters(Session& session, torch::nn::Module& module, int root = 0);
void broadcast_parameters(Session& session, const NamedTensors& tensors, int root = 0);

// Replaces each floating-point buffer of the module and its submodules (batch norm's running_mean
// and running_var) by its average over all ranks, bit for bit equal on all of them. Not changed:
// parameters, integer and bool buffers (num_batches_tracked), undefined ones (batch norm without
// statistics). Call it on all ranks before rank 0 evaluates or saves. Running variances are
// averaged as they are: the spread of the ranks' means is not added. UsageError for complex buffers
// and other types that cannot be sent.
void average_statistics(Session& session, torch::nn::Module& module);

// Copies learning rates and state (SGD, Adam, AdamW, RMSprop, Adagrad) of rank `root`'s optimizer
// to every rank. All ranks. UsageError for other optimizers.
void broadcast_optimizer_state(Session& session, torch::optim::Optimizer& optimizer, int root = 0);

}  // namespace horon::train
