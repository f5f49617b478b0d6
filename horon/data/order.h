#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

// Which rank reads which sample, and when. Pure: everything is computed from the seed and the
// position.
namespace horon {

// A permutation of [0, size), computed without a table.
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, uint64_t stream);
  uint64_t size() const { return size_; }
  uint64_t at(uint64_t position) const;

 private:
  uint64_t size_;
  uint64_t rows_;
  uint64_t columns_;
  uint64_t key_;
};

// The order of the samples of one epoch, the same on every rank.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;
  virtual uint64_t size() const = 0;
  virtual uint64_t at(uint64_t position) const = 0;  // a sample's number
};

// How an epoch is shuffled.
struct OrderOptions {
  uint64_t seed = 0;
  bool shuffles = true;
  int window_chunks = 16;  // chunked data: records are shuffled within this many chunks
};

// `chunks`: sizes of ranges of samples that are best read together (parts of files); empty: no
// preference. Chunks are permuted, then the samples inside windows of several chunks.
std::unique_ptr<EpochOrder> make_epoch_order(uint64_t size, std::span<const uint64_t> chunks,
                                             uint64_t epoch, const OrderOptions& options);

// The position of training: the whole state of the input.
struct Position {
  uint64_t epoch = 0;
  uint64_t next = 0;  // samples of this epoch already read, by all ranks together
  bool operator==(const Position&) const = default;
};

// Range `part` of `count` items split into `parts` ranges, as even as possible, the first ones
// longer.
struct Range {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t size() const { return last - first; }
};
Range cut(uint64_t count, uint64_t parts, uint64_t part);

// What one rank reads of one batch.
struct BatchPart {
  uint64_t epoch = 0;  // of this batch

  Range global;               // positions in the epoch that all ranks together read
  std::vector<Range> shards;  // of this rank: ranges of positions, one per logical shard
  Position after;
  // Samples of this rank; its weight in the average is count() / global.size().
  uint64_t count() const;
};

// How an epoch is split into batches, and batches into shards.
struct BatchOptions {
  uint64_t samples = 0;  // of an epoch
  uint64_t batch = 0;    // all ranks together
  uint64_t shards = 0;   // logical shards of a batch; 0: one per rank
  bool drops_remainder = false;
  uint64_t smallest = 1;  // minimum samples per shard: a short batch has fewer shards; a smaller
                          // remainder is merged into the previous batch
};
// The batch at `position` for rank `rank` of `ranks`. Every sample of an epoch occurs exactly once;
// the last batch may be short. UsageError for a batch of 0, or more ranks than shards.
//
//   const auto order = make_epoch_order(options.samples, {}, epoch, {.seed = 1});
//   const BatchPart part = plan_batch(position, options, rank, ranks);
//   for (const Range& shard : part.shards)
//     for (uint64_t i = shard.first; i < shard.last; ++i) read(order->at(i));
BatchPart plan_batch(const Position& position, const BatchOptions& options, int rank, int ranks);
uint64_t batches_in_epoch(const BatchOptions& options);

// How other programs distribute samples, for comparison.
enum class SplitMethod { kGlobal, kSplitSteps, kSplitEpochs, kFixedShard };
// "global", "split_steps", "split_epochs" or "fixed_shard"; UsageError for another name.
SplitMethod parse_split_method(const std::string& name);
std::vector<std::string> split_method_names();
// The samples that a rank reads in an epoch, in order.
std::vector<uint64_t> samples_of_rank(SplitMethod way, const BatchOptions& options, uint64_t epoch,
                                      uint64_t seed, int rank, int ranks);

}  // namespace horon
