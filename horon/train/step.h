#pragma once

#include <optional>
#include <stop_token>

#include "horon/data/pipeline.h"
#include "horon/train/callback.h"
#include "horon/train/gradient_sync.h"
#include "horon/train/length.h"

namespace horon::train {

// Runs forward and backward of every shard of the plan and shares gradients and statistics:
// afterwards they are the same on every rank (sync.slices()). All ranks. If anything throws, the
// step has been abandoned and statistics are restored.
StepSums compute_gradients(Replica& replica, GradientSync& sync, const StepPlan& plan,
                           const Wishes& wishes = {});

// One optimizer step of this rank, from its input to its callbacks; read step.cc from top to
// bottom. Owns its input batches; everything in Parts outlives it. One thread. Throws what its
// parts throw: CorruptRecord (input), PeerLostError and TimeoutError (sync), errors of callbacks.
class TrainStep {
 public:
  struct Parts {
    const TrainConfig& config;
    Replica& replica;
    Optimizer& optimizer;
    GradientSync& sync;
    const Callbacks& callbacks;
    Pipeline& input;
    RunState& state;
    const RunLength& length;
    BatchOptions batching;      // how batches are split into shards
    Accelerator accelerator;    // the replica's
    std::stop_token stop = {};  // requested when a signal arrived
  };
  explicit TrainStep(const Parts& parts) : parts_(parts) {}

  // All ranks. moment.is_last and moment.ends_epoch tell what follows. If it throws before the
  // update, the state is the one before the step, and the next call uses the same batches.
  void run(Moment& moment);

 private:
  struct Input {  // batches stay in memory while their shards are used
    std::vector<Batch> batches;
    StepPlan plan;
    Position after;
  };
  Input load(int rank, int ranks);
  StepPlan::Pass pass_of(const Batch& batch, int rank, int ranks) const;
  double epoch() const;

  Parts parts_;
  std::optional<Input> input_;  // of the step that runs or failed
};

}  // namespace horon::train
