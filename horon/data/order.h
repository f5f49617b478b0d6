#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

// Who reads which sample when. Pure: everything follows from the seed and the position.
namespace horon {

// A permutation of [0, size) without a table: position -> number.
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

// The samples of one epoch in the order in which they are read, the same on every rank.
class EpochOrder {
 public:
  virtual ~EpochOrder() = default;
  virtual uint64_t size() const = 0;
  virtual uint64_t at(uint64_t position) const = 0;  // a sample's number
};

struct OrderOptions {
  uint64_t seed = 0;
  bool shuffles = true;
  int window_chunks = 16;  // of data in chunks: records are mixed inside so many of them
};

// `chunks`: sizes of runs of samples that are best read together (parts of files); empty: any
// sample is as near as any other. In chunks: the chunks are permuted, then the samples inside
// windows of some chunks.
std::unique_ptr<EpochOrder> make_epoch_order(uint64_t size, std::span<const uint64_t> chunks,
                                             uint64_t epoch, const OrderOptions& options);

// Where training is: the whole state of the input.
struct Position {
  uint64_t epoch = 0;
  uint64_t next = 0;  // samples of this epoch that were read by all ranks together
  bool operator==(const Position&) const = default;
};

// Item `part` of `count` items cut into `parts` runs, as even as possible, the first ones longer.
struct Range {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t size() const { return last - first; }
};
Range cut(uint64_t count, uint64_t parts, uint64_t part);

// What one rank does in one step.
struct Step {
  uint64_t epoch = 0;  // that it belongs to

  Range global;               // positions in the epoch that all ranks together read
  std::vector<Range> shards;  // of this rank: runs of positions, one per logical shard
  Position after;
  uint64_t count()
      const;  // samples of this rank; its share of the average is count / global.size()
};

struct ShareOptions {
  uint64_t samples = 0;  // of an epoch
  uint64_t batch = 0;    // all ranks together
  uint64_t shards = 0;   // logical shards of a batch; 0: one per rank
  bool drops_remainder = false;
  uint64_t smallest = 1;  // samples of a shard: a short batch has fewer shards, a rest that is
                          // smaller still belongs to the batch before it
};
// The step at `position` for rank `rank` of `ranks`. Every sample of an epoch comes exactly once,
// whatever the numbers; the last batch may be short. UsageError for a batch of 0, or more ranks
// than shards.
Step plan_step(const Position& position, const ShareOptions& options, int rank, int ranks);
uint64_t steps_in_epoch(const ShareOptions& options);

// The ways that other programs shard, for comparison.
enum class ShardWay { kGlobal, kSplitSteps, kSplitEpochs, kFixedShard };
ShardWay parse_shard_way(
    const std::string& name);  // global, split_steps, split_epochs, fixed_shard
std::vector<std::string> shard_way_names();
// The samples that a rank reads in an epoch, in order.
std::vector<uint64_t> samples_of_rank(ShardWay way, const ShareOptions& options, uint64_t epoch,
                                      uint64_t seed, int rank, int ranks);

}  // namespace horon
