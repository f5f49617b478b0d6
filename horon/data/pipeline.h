#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "horon/data/augment.h"
#include "horon/data/order.h"
#include "horon/device/stream.h"

namespace horon {

struct PipelineOptions {
  std::shared_ptr<const Dataset> dataset;
  Recipe recipe;
  OutputForm form;
  OrderOptions order;
  uint64_t batch = 0;     // of all ranks together
  uint64_t shards = 0;    // logical shards of a batch; 0: one per rank
  uint64_t smallest = 1;  // samples of a shard, see ShareOptions
  bool drops_remainder = false;
  int rank = 0;
  int ranks = 1;
  Position start;
  uint64_t epochs = 0;  // ends before this epoch; 0: never
  int threads = 1;
  int prefetch = 2;  // batches that are ready or being made
  // More than these on this rank, each counted once however often it comes: the error is thrown.
  uint64_t max_corrupt_records = 0;
  std::shared_ptr<DeviceRuntime> device;  // batches are copied there; null: they stay here
  int device_index = 0;
};

// What one rank gets in one step. The memory is the pipeline's, until the batch is gone.
struct Batch {
  BufferView pixels;  // count x (C x H x W or H x W x C)
  std::vector<int64_t> labels;
  std::vector<uint64_t> samples;  // their numbers in the data set
  std::vector<uint64_t>
      shard_sizes;            // of this rank's logical shards, in order; they add up to count
  uint64_t global_count = 0;  // samples that all ranks were to read in this step
  uint64_t epoch = 0;
  Position after;               // where to go on from
  std::shared_ptr<void> holds;  // gives the memory back
  uint64_t count() const { return labels.size(); }
};

// Makes batches ahead: threads read, decode, transform and write straight into the batch's memory.
// What comes out does not depend on the number of threads. At most `prefetch` batches are in
// memory; when they are all full, the threads sleep. next() is for one thread; the destructor stops
// at once.
class Pipeline {
 public:
  // CorruptRecord when more of the data set was lost at opening than is allowed.
  explicit Pipeline(const PipelineOptions& options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Nothing after the last epoch. CorruptRecord with file, offset and reason when there were more
  // bad records than allowed; IoError when the storage fails.
  std::optional<Batch> next();

  struct Memory {
    uint64_t cap = 0;      // of all batches together: it is never more
    uint64_t peak = 0;     // of those that were being made, ready, or with the caller at one time
    uint64_t threads = 0;  // what the threads read and decode into, at its largest
    uint64_t dataset = 0;  // what the data set keeps
  };
  struct Report {
    uint64_t samples = 0;
    // Records that were passed over, of this rank: lost + corrupt_samples.size(). For all ranks
    // together unite their corrupt_samples; `lost` is the same everywhere.
    uint64_t corrupt = 0;
    uint64_t lost = 0;                      // Dataset::losses
    std::vector<uint64_t> corrupt_samples;  // their numbers, in order
    std::vector<std::string> reasons;       // of the first ten
    double waited_seconds = 0;              // of next(), for batches
    Memory memory;
  };
  Report report() const;
  uint64_t memory_bytes() const;  // Memory::cap

 private:
  void stop();
  struct State;
  std::shared_ptr<State> state_;  // batches give their memory back to it, if it is still there
  std::vector<std::jthread> threads_;
};

}  // namespace horon
