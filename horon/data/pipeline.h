#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "horon/data/image/augment.h"
#include "horon/data/order.h"
#include "horon/device/stream.h"

namespace horon {

// Data set, processing and this rank's part of the batches.
struct PipelineOptions {
  std::shared_ptr<const Dataset> dataset;
  Recipe recipe;
  OutputForm form;
  OrderOptions order;
  uint64_t batch = 0;     // of all ranks together
  uint64_t shards = 0;    // logical shards of a batch; 0: one per rank
  uint64_t smallest = 1;  // minimum samples per shard, see BatchOptions
  bool drops_remainder = false;
  int rank = 0;
  int ranks = 1;
  Position start;
  uint64_t epochs = 0;  // ends before this epoch; 0: never
  int threads = 1;
  int prefetch = 2;  // batches that are ready or being prepared
  // Corrupt records allowed on this rank, each counted once; with more, next() throws.
  uint64_t max_corrupt_records = 0;
  std::shared_ptr<DeviceRuntime> device;  // batches are copied there; null: host memory
  int device_index = 0;
};

// One rank's part of one batch. The pipeline owns the memory; it is reused when the batch is
// destroyed.
struct Batch {
  BufferView pixels;  // count x (C x H x W or H x W x C)
  std::vector<int64_t> labels;
  std::vector<uint64_t> samples;      // numbers in the data set
  std::vector<uint64_t> shard_sizes;  // of this rank's logical shards, in order; the sum is count
  uint64_t global_count = 0;          // samples of all ranks in this batch
  uint64_t epoch = 0;
  Position after;               // position after this batch
  std::shared_ptr<void> holds;  // returns the memory
  uint64_t count() const { return labels.size(); }
};

// Prepares batches ahead: threads read, decode, transform and write directly into the batch's
// memory. The result does not depend on the number of threads. At most `prefetch` batches are in
// memory; when all are full, the threads sleep. next() is for one thread; the destructor stops at
// once.
//   Pipeline pipeline({.dataset = set, .recipe = recipe, .batch = 128, .epochs = 1, .threads = 4});
//   while (auto batch = pipeline.next()) train_on(batch->pixels, batch->labels);
class Pipeline {
 public:
  // CorruptRecord if more of the data set was lost on opening than is allowed.
  explicit Pipeline(const PipelineOptions& options);
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // The next batch; nothing after the last epoch. CorruptRecord with file, offset and reason if
  // there were more corrupt records than allowed; IoError if the storage fails.
  std::optional<Batch> next();

  struct Memory {
    uint64_t cap = 0;      // upper limit for all batches together
    uint64_t peak = 0;     // maximum of batches in preparation, ready, or in use at one time
    uint64_t threads = 0;  // the threads' buffers, at their largest
    uint64_t dataset = 0;  // memory of the data set
  };
  struct Report {
    uint64_t samples = 0;
    // Skipped records of this rank: lost + corrupt_samples.size(). For all ranks together, take the
    // union of their corrupt_samples; `lost` is the same everywhere.
    uint64_t corrupt = 0;
    uint64_t lost = 0;                      // Dataset::losses
    std::vector<uint64_t> corrupt_samples;  // their numbers, in order
    std::vector<std::string> reasons;       // of the first ten
    double waited_seconds = 0;              // by next()
    Memory memory;
  };
  Report report() const;
  uint64_t memory_bytes() const;  // Memory::cap

 private:
  void stop();
  struct State;
  std::shared_ptr<State> state_;  // batches return their memory to it if it still exists
  std::vector<std::jthread> threads_;
};

}  // namespace horon
