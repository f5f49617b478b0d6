#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "horon/comm/arithmetic/exact_tree.h"
#include "horon/device/mirror.h"

namespace horon {

// One rank's part of an exact sum over `shards` logical shards (exact_tree.h). Shards are folded as
// they are added and only complete nodes are kept: at most 2 log2(shards) arrays for a contiguous
// block, log2(shards) + 1 if it begins at shard 0, one if it is aligned. One thread at a time.
//   ExactSum sum = comm.exact_sum(count, DType::kF32, shards);
//   for (uint64_t s = first; s < last; ++s) sum.add(s, gradient_of(s));
//   comm.all_reduce(sum, out);
//
// Give each rank a contiguous block of shards, as the trainer does. With round-robin shards hardly
// any two form a node: 128 shards on 2 ranks are 64 arrays each, in memory and in transfer. More
// arrays than a contiguous block could need are therefore a UsageError, the same on all ranks, with
// the numbers. (To fold them anyway, ranks would first have to exchange the arrays that folding is
// meant to save.)
class ExactSum {
 public:
  // `dtype` is f32 or f64. `allocate` provides memory, e.g. the communicator's heap. Device
  // contributions are staged through pinned memory of `device`, which may be null.
  using Allocate = std::function<OwnedBuffer(uint64_t count, DType dtype)>;
  ExactSum(uint64_t count, DType dtype, uint64_t shards, Allocate allocate,
           std::shared_ptr<DeviceRuntime> device = nullptr);

  // Adds the contribution of one shard; the buffer is not kept. Each shard must be added once in
  // the whole job (UsageError).
  void add(uint64_t shard, BufferView contribution);
  // Starts a new sum; memory is kept.
  void clear();

  const BufferView& spec() const { return spec_; }
  uint64_t shards() const { return shards_; }
  // A complete node and its array.
  struct Kept {
    TreeNode node;
    OwnedBuffer array;
  };
  const std::vector<Kept>& kept() const { return kept_; }

 private:
  OwnedBuffer take_array();
  // Merges kept_[i] with its siblings as long as there are any.
  void settle(size_t i);

  BufferView spec_;
  uint64_t shards_;
  Allocate allocate_;
  std::shared_ptr<DeviceRuntime> device_;
  std::vector<Kept> kept_;
  std::vector<OwnedBuffer> spare_;
};

}  // namespace horon
