#include "horon/train/run_state.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "horon/base/error.h"

namespace horon::train {
namespace {

void copy(const Accelerator& accelerator, void* to, const void* from, uint64_t bytes) {
  if (accelerator.is_cpu()) {
    std::memcpy(to, from, bytes);
  } else {
    accelerator.math->copy(to, from, bytes);
  }
}

TensorMap arrays_of(const Trainee& trainee) {
  TensorMap map;
  for (const auto& [name, values] : trainee.optimizer.state()) {
    NamedTensor& one = map[name] = {"F32", {values.count}, std::string(values.bytes(), '\0')};
    copy(trainee.accelerator, one.bytes.data(), values.data, values.bytes());
  }
  return map;
}

void load_arrays(const Trainee& trainee, const TensorMap& map) {
  for (const auto& [name, values] : trainee.optimizer.state()) {
    const auto found = map.find(name);
    if (found == map.end() || found->second.bytes.size() != values.bytes())
      throw Error(fmt::format("the checkpoint has no '{}' of this optimizer", name),
                  ExitCode::kCheckpoint);
    copy(trainee.accelerator, values.data, found->second.bytes.data(), values.bytes());
  }
}

}  // namespace

Snapshot take_snapshot(const RunState& state, const Trainee& trainee, const TrainConfig& config,
                       int ranks) {
  return {state.step, state.position,      trainee.replica.state(), arrays_of(trainee), config,
          ranks,      state.best_accuracy, trainee.optimizer.steps, state.data};
}

void restore(const Snapshot& snapshot, RunState& state, const Trainee& trainee) {
  trainee.replica.load(snapshot.model);
  trainee.optimizer.steps = 0;
  if (!snapshot.optimizer.empty() || trainee.optimizer.state().empty()) {
    load_arrays(trainee, snapshot.optimizer);
    trainee.optimizer.steps = snapshot.optimizer_steps;
  }
  state = {snapshot.step, snapshot.position, snapshot.best_accuracy, state.data};
}

std::string broadcast_text(Communicator& comm, std::string text) {
  std::array<int64_t, 1> size = {static_cast<int64_t>(text.size())};
  comm.broadcast(view_of(size), 0, {.name = "size of state", .timeout = kNoLimit});
  text.resize(static_cast<size_t>(size[0]));
  comm.broadcast(BufferView{text.data(), text.size(), DType::kU8, {}}, 0,
                 {.name = "state", .timeout = kNoLimit});
  return text;
}

void broadcast_state(Communicator& comm, RunState& state, const Trainee& trainee) {
  std::array<int64_t, 4> counts = {
      static_cast<int64_t>(state.step), static_cast<int64_t>(state.position.epoch),
      static_cast<int64_t>(state.position.next), static_cast<int64_t>(trainee.optimizer.steps)};
  comm.broadcast(view_of(counts), 0, {.name = "position", .timeout = kNoLimit});
  std::array<double, 1> best = {state.best_accuracy};
  comm.broadcast(view_of(best), 0, {.name = "best accuracy"});
  const bool sends = comm.rank() == 0;
  const std::string model =
      broadcast_text(comm, sends ? pack_safetensors(trainee.replica.state()) : "");
  const std::string arrays =
      broadcast_text(comm, sends ? pack_safetensors(arrays_of(trainee)) : "");
  state = {static_cast<uint64_t>(counts[0]),
           {static_cast<uint64_t>(counts[1]), static_cast<uint64_t>(counts[2])},
           best[0],
           state.data};
  trainee.optimizer.steps = static_cast<uint64_t>(counts[3]);
  if (sends) return;
  trainee.replica.load(unpack_safetensors(model, "rank 0's model"));
  load_arrays(trainee, unpack_safetensors(arrays, "rank 0's optimizer"));
}

}  // namespace horon::train
