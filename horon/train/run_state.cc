#include "horon/train/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "horon/base/error.h"

namespace horon::train {
namespace {

TensorMap arrays_of(Optimizer& optimizer) {
  TensorMap map;
  for (const auto& [name, values] : optimizer.state())
    map[name] = {"F32",
                 {values->size()},
                 std::string(reinterpret_cast<const char*>(values->data()), values->size() * 4)};
  return map;
}

void load_arrays(Optimizer& optimizer, const TensorMap& map) {
  for (const auto& [name, values] : optimizer.state()) {
    const auto found = map.find(name);
    if (found == map.end() || found->second.bytes.size() != values->size() * 4)
      throw Error(fmt::format("the checkpoint has no '{}' of this optimizer", name),
                  ExitCode::kCheckpoint);
    std::copy_n(found->second.bytes.data(), found->second.bytes.size(),
                reinterpret_cast<char*>(values->data()));
  }
}

}  // namespace

Snapshot take_snapshot(const RunState& state, const Replica& replica, Optimizer& optimizer,
                       const TrainConfig& config, int ranks) {
  return {state.step, state.position, replica.state(),    arrays_of(optimizer),
          config,     ranks,          state.best_accuracy};
}

void restore(const Snapshot& snapshot, RunState& state, Replica& replica, Optimizer& optimizer) {
  replica.load(snapshot.model);
  if (!snapshot.optimizer.empty()) load_arrays(optimizer, snapshot.optimizer);
  optimizer.steps = snapshot.step;
  state = {snapshot.step, snapshot.position, snapshot.best_accuracy};
}

std::string share_text(Communicator& comm, std::string text) {
  std::array<int64_t, 1> size = {static_cast<int64_t>(text.size())};
  comm.broadcast(view_of(size), 0, {.name = "size of state"});
  text.resize(static_cast<size_t>(size[0]));
  comm.broadcast(BufferView{text.data(), text.size(), DType::kU8, {}}, 0, {.name = "state"});
  return text;
}

void share_state(Communicator& comm, RunState& state, Replica& replica, Optimizer& optimizer) {
  std::array<int64_t, 4> counts = {
      static_cast<int64_t>(state.step), static_cast<int64_t>(state.position.epoch),
      static_cast<int64_t>(state.position.next), static_cast<int64_t>(optimizer.steps)};
  comm.broadcast(view_of(counts), 0, {.name = "position"});
  std::array<double, 1> best = {state.best_accuracy};
  comm.broadcast(view_of(best), 0, {.name = "best accuracy"});
  const bool sends = comm.rank() == 0;
  const std::string model = share_text(comm, sends ? pack_safetensors(replica.state()) : "");
  const std::string arrays = share_text(comm, sends ? pack_safetensors(arrays_of(optimizer)) : "");
  state = {static_cast<uint64_t>(counts[0]),
           {static_cast<uint64_t>(counts[1]), static_cast<uint64_t>(counts[2])},
           best[0]};
  optimizer.steps = static_cast<uint64_t>(counts[3]);
  if (sends) return;
  replica.load(unpack_safetensors(model, "rank 0's model"));
  load_arrays(optimizer, unpack_safetensors(arrays, "rank 0's optimizer"));
}

}  // namespace horon::train
