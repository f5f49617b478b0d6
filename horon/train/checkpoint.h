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

// Identifies the data a run trains on: its size and the digest of its index.
struct DataMark {
  uint64_t samples = 0;  // 0: unknown
  uint64_t digest = 0;
  bool operator==(const DataMark&) const = default;
};

// Everything needed to resume a run. A value.
struct Snapshot {
  uint64_t step = 0;  // optimizer steps taken
  Position position;
  TensorMap model;      // parameters and statistics
  TensorMap optimizer;  // arrays of its state
  TrainConfig config;
  int ranks = 1;  // that made it: for information
  double best_accuracy = 0;
  uint64_t optimizer_steps = 0;  // updates made; fewer than `step` if some were skipped
  DataMark data = {};
  // Codec state by rank and tensor: from GradientSync::save_codec_states(), given to any number of
  // ranks by restore_codec_states(). Empty: codecs keep nothing.
  std::vector<std::map<std::string, std::string>> codec_states = {};
};

// A folder of checkpoints: ckpt-00000120/{model.safetensors,optimizer.safetensors,manifest.json},
// and codec.safetensors (bytes named RANK/TENSOR) if codecs keep state. A checkpoint is written to
// a folder with another name and renamed when all its bytes are on disk; the manifest, with sizes
// and checksums, is written last. One process writes; one thread at a time calls.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::string folder, uint64_t keep = 5);  // keep 0: all
  ~CheckpointStore();

  // Blocks until the checkpoint is on disk, then removes the oldest beyond `keep`. IoError.
  void save(const Snapshot& snapshot);
  // The same on a thread of its own, after the previous one has finished. Errors are thrown by the
  // next call or by finish().
  void save_later(Snapshot snapshot);
  // Waits for save_later().
  void finish();

  // Steps of the existing checkpoints, ascending; they are not validated.
  std::vector<uint64_t> steps() const;
  // The newest valid checkpoint, or nothing; `warn` receives a line for each damaged one.
  std::optional<Snapshot> load_newest(const std::function<void(const std::string&)>& warn) const;
  // Loads one checkpoint. Error (exit code 13) that names the file and the reason.
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
