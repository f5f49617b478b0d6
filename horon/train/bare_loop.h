#pragma once

#include <memory>

#include "horon/train/replica.h"

namespace horon {
class Session;
}

namespace horon::train {

// One of our networks trained by LibTorch alone, in the simplest loop: SGD with momentum on cross
// entropy. Benchmarks and tests compare the trainer with it, so it shares only the network with
// Replica. Not thread-safe. Make it while nothing else draws initial weights, because their random
// generator belongs to the process. It uses LibTorch's current number of threads and choice of
// algorithms.
class BareLoop {
 public:
  // With a session, the optimizer is inside a DistributedOptimizer. UsageError: config.model is
  // unknown, or `device` is a GPU that does not exist.
  BareLoop(const TrainConfig& config, const ModelShape& shape, Device device = {},
           Session* session = nullptr);
  ~BareLoop();
  void step(const Replica::Samples& samples);
  // The same without the update: computes gradients, over all ranks if there is a session.
  void compute(const Replica::Samples& samples);
  TensorMap state() const;  // as Replica::state()

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace horon::train
