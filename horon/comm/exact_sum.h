#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "horon/comm/exact_tree.h"
#include "horon/device/mirror.h"

namespace horon {

// One rank's part of an exact sum over `shards` logical shards (exact_tree.h): shards are folded as
// they come, and only complete nodes are kept, at most log2(shards) + 1 arrays if they come in
// order, one if they are an aligned block. Afterwards: comm.run(Request::all_reduce(sum, out)). One
// thread at a time.
//
// Deal contiguous blocks of shards, as the trainer does. Of shards that are dealt like cards hardly
// two make a node: 128 on 2 ranks are 64 arrays each, in memory and on their way. More than a
// contiguous block could need is therefore a UsageError, the same on all ranks, with the numbers.
// (To fold them all the same, ranks would first have to swap the very arrays that are to be saved.)
class ExactSum {
 public:
  // `spec` gives count and type (f32 or f64). Memory comes from `allocate`, e.g. the communicator's
  // heap. Device contributions come through pinned memory of `device`, which may be null.
  using Allocate = std::function<OwnedBuffer(uint64_t count, DType dtype)>;
  ExactSum(uint64_t count, DType dtype, uint64_t shards, Allocate allocate,
           std::shared_ptr<DeviceRuntime> device = nullptr);

  // Adds the contribution of one shard, which is not kept. Each shard once in the whole job.
  void add(uint64_t shard, BufferView contribution);
  // Ready for the next step; memory is kept.
  void clear();

  const BufferView& spec() const { return spec_; }
  uint64_t shards() const { return shards_; }
  struct Kept {
    TreeNode node;
    OwnedBuffer array;
  };
  const std::vector<Kept>& kept() const { return kept_; }

 private:
  OwnedBuffer take_array();
  // Joins kept_[i] with its siblings as long as there are any.
  void settle(size_t i);

  BufferView spec_;
  uint64_t shards_;
  Allocate allocate_;
  std::shared_ptr<DeviceRuntime> device_;
  std::vector<Kept> kept_;
  std::vector<OwnedBuffer> spare_;
};

}  // namespace horon
