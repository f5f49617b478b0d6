#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/runtime/runtime.h"
#include "horon/train/optimizer.h"
#include "horon/train/replica.h"

namespace horon::train {

// Results of one step, summed over all ranks.
struct StepSums {
  Score score;
  double stops = 0;                // ranks that received a signal
  double ends = 0;                 // ranks whose callbacks asked to end the run
  std::vector<std::string> flaws;  // what was not finite before the reduction, and on which rank
};

// What this rank requests in its next step.
struct Wishes {
  bool stop = false;
  bool end = false;
};

// The part of a batch that one rank computes at once: a logical shard.
struct Shard {
  uint64_t number = 0;  // within the whole batch
  Replica::Samples samples;
};

// One step of this rank: a forward and backward pass for each batch that it accumulates.
struct StepPlan {
  struct Pass {
    std::vector<Shard> shards;  // of this rank, none of them empty
    uint64_t samples = 0;       // of the whole batch, on all ranks
  };
  std::vector<Pass> passes;
  uint64_t step = 0;  // optimizer steps taken before this one; for codecs

  // Sums of losses are divided by this, so that gradients are averages over all samples.
  double divisor(size_t pass) const {
    return static_cast<double>(passes[pass].samples) * static_cast<double>(passes.size());
  }
};

// The interface between the trainer and every way to share gradients and batch norm's statistics.
// Passive: the step (step.h) calls it in this order, on every rank alike:
//
//   begin(plan)
//     for each pass:     for each shard of this rank:
//                          begin_shard(pass, shard)
//                          need(i)               for every parameter, before the forward pass
//                          ready(i, gradient)    in the backward pass, in any order
//                          end_shard(score)
//                        end_pass(pass)
//   finish(wishes)       gradients, statistics and sums are the same on every rank
//   update(...)          or abandon()
//
// abandon() may be called at any time after begin(): nothing of the step remains on this rank, and
// statistics are restored; it never waits for other ranks. Then the step can be repeated, with one
// exception: if it failed on one of several ranks after some gradients had been sent and before
// finish() returned, the other ranks may have used them. begin() is an Error then; reconnect the
// ranks (Runtime::rebind) and make another sync. After finish() every rank has the same sums: what
// is decided then (to update or to abandon) must be decided alike on all. One thread calls; ready()
// is called by the thread that runs the backward pass. The object owns the gradients' memory, not
// the parameters.
//
//   auto sync = make_sync(config, runtime, replica);  // and compute_gradients() of step.h:
//   compute_gradients(replica, *sync, plan), sync->update(optimizer, rate);
class GradientSync {
 public:
  virtual ~GradientSync() = default;
  // The parameters, and where their gradients are after finish().
  virtual const std::vector<Slice>& slices() const = 0;

  virtual void begin(const StepPlan& plan) = 0;
  virtual void begin_shard(size_t pass, const Shard& shard) = 0;
  // Returns when parameter i may be read; a parameter server would fetch it here. Limit: a replica
  // calls it for all parameters before its first layer, so waiting does not overlap the forward
  // pass.
  virtual void need(size_t parameter) { (void)parameter; }
  // `gradient` is valid only during the call, in the memory of the replica's device.
  virtual void ready(size_t parameter, const float* gradient) = 0;
  virtual void end_shard(const Score& score) = 0;
  // All ranks, including those without a shard in this pass.
  virtual void end_pass(size_t pass) = 0;
  // All ranks. Waits for the other ranks.
  virtual StepSums finish(const Wishes& wishes) = 0;
  virtual void abandon() = 0;
  // Updates the parameters with the gradients. Override it to update elsewhere.
  virtual void update(Optimizer& optimizer, double rate) { optimizer.step(slices(), rate); }

  // Whether a codec may keep state from step to step; the same on all ranks. If so, all ranks call
  // the two functions below, between steps: save gives each rank's state on rank 0, restore deals
  // what rank 0 passes (codec_state.h).
  virtual bool keeps_codec_state() const { return false; }
  virtual std::vector<CodecStates> save_codec_states() { return {}; }
  virtual void restore_codec_states(std::span<const CodecStates>) {}

  // Gradients that never became ready (the parameter was not used) and were taken as zero.
  uint64_t mended = 0;
};

// Reduces buckets while the backward pass still runs; the same bits from run to run. Autograd owns
// a gradient until the hook copies it into its bucket, which was measured faster than views of the
// bucket. At most one shard per rank and pass. `codec` compresses gradients (codec/codec.h); empty:
// f32. UsageError for an unknown one.
std::unique_ptr<GradientSync> make_fast_sync(Runtime& runtime, Replica& replica,
                                             const Accelerator& accelerator = {},
                                             const std::string& codec = {});
// Sums logical shards with the canonical tree: the same bits on any number of ranks.
std::unique_ptr<GradientSync> make_exact_sync(Runtime& runtime, Replica& replica, uint64_t shards,
                                              const Accelerator& accelerator = {});
// The kind that the settings name; a codec is a UsageError with exact. If they ask for it, the
// replica takes batch norm's statistics over these ranks. After the ranks have reconnected, make
// another one: replica, optimizer and their counts remain, the slices change.
std::unique_ptr<GradientSync> make_sync(const TrainConfig& config, Runtime& runtime,
                                        Replica& replica, const Accelerator& accelerator = {},
                                        const std::string& codec = {});

}  // namespace horon::train
