#pragma once

#include <string>

#include "horon/comm/communicator.h"
#include "horon/train/checkpoint.h"
#include "horon/train/optimizer.h"
#include "horon/train/replica.h"

// The state of a run at one moment: to save it, restore it, and send it to the other ranks.
namespace horon::train {

// Progress of a run.
struct RunState {
  uint64_t step = 0;
  Position position;
  double best_accuracy = 0;
  DataMark data = {};  // the current training data
};

// What is trained, and on which device. Refers to objects that outlive it.
struct Trainee {
  Replica& replica;
  Optimizer& optimizer;
  const Accelerator& accelerator;
};

Snapshot take_snapshot(const RunState& state, const Trainee& trainee, const TrainConfig& config,
                       int ranks);
// Error (exit code 13) if the tensors belong to another model or optimizer. Without optimizer
// arrays the optimizer starts from zero.
void restore(const Snapshot& snapshot, RunState& state, const Trainee& trainee);

// Rank 0's text on every rank. All ranks.
std::string broadcast_text(Communicator& comm, std::string text);
// Copies rank 0's whole state to every rank, before the first step. All ranks.
void broadcast_state(Communicator& comm, RunState& state, const Trainee& trainee);

}  // namespace horon::train
