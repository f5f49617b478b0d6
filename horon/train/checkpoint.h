#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "horon/data/order.h"
#include "horon/train/config.h"
#include "horon/train/safetensors.h"

namespace horon::train {

// Which data a run learns from: its size and the digest of its index.
struct DataMark {
  uint64_t samples = 0;  // 0: not known
  uint64_t digest = 0;
  bool operator==(const DataMark&) const = default;
};

// Everything that a run needs to go on.
struct Snapshot {
  uint64_t step = 0;  // optimizer steps taken
  Position position;
  TensorMap model;      // parameters and statistics
  TensorMap optimizer;  // its arrays
  TrainConfig config;
  int ranks = 1;  // that made it: for information
  double best_accuracy = 0;
  uint64_t optimizer_steps = 0;  // updates that were made; fewer than `step` if some were skipped
  DataMark data = {};
  // What codecs keep, by rank and by tensor: filled by gather_codec_states(), handed out to any
  // number of ranks by scatter_codec_states() (runtime/codec_state.h). Empty: they keep nothing.
  std::vector<std::map<std::string, std::string>> codec_states = {};
};

// A folder of checkpoints: ckpt-00000120/{model.safetensors,optimizer.safetensors,manifest.json},
// and codec.safetensors if codecs keep something: bytes under the names RANK/TENSOR. A checkpoint
// is made in a folder of another name and renamed when all its bytes are on disk; the manifest,
// with sizes and checksums, is written last. One process writes.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string folder, uint64_t keep = 5);  // keep 0: all
  ~CheckpointStore();

  // Blocks until it is on disk; then removes the oldest beyond `keep`. IoError.
  void save(const Snapshot& snapshot);
  // The same on a thread of its own; waits for the one before it. An error is thrown by the next
  // call, or by finish().
  void save_later(Snapshot snapshot);
  void finish();

  // Steps of the checkpoints that are there, ascending; whether they are good is not looked at.
  std::vector<uint64_t> steps() const;
  // The newest good one; `warn` hears of each that is not. Nothing if there is none.
  std::optional<Snapshot> load_newest(const std::function<void(const std::string&)>& warn) const;
  // Error (exit code 13) with the file and the reason.
  static Snapshot load(const std::string& checkpoint);
  std::string path_of(uint64_t step) const;

 private:
  void write(const Snapshot& snapshot, const std::string& fresh);
  std::string folder_;
  uint64_t keep_;
  std::jthread writer_;
  std::exception_ptr failed_;
};

}  // namespace horon::train
