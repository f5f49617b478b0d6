#pragma once

#include <string>

#include "horon/comm/communicator.h"
#include "horon/train/checkpoint.h"
#include "horon/train/optimizer.h"
#include "horon/train/replica.h"

// What a run is made of at a moment: to keep it, to take it up again, to give it to the other
// ranks.
namespace horon::train {

struct RunState {
  uint64_t step = 0;
  Position position;
  double best_accuracy = 0;
  DataMark data = {};  // what it learns from now
};

// What is trained, and where it lies.
struct Trainee {
  Replica& replica;
  Optimizer& optimizer;
  const Accelerator& place;
};

Snapshot take_snapshot(const RunState& state, const Trainee& trainee, const TrainConfig& config,
                       int ranks);
// Error (exit code 13) if the tensors are of another model or optimizer. Without optimizer arrays
// the optimizer starts anew.
void restore(const Snapshot& snapshot, RunState& state, const Trainee& trainee);

// Rank 0's text on every rank. All ranks.
std::string share_text(Communicator& comm, std::string text);
// Everything of rank 0 on every rank, before the first step. All ranks.
void share_state(Communicator& comm, RunState& state, const Trainee& trainee);

}  // namespace horon::train
