#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "horon/runtime/mover.h"
#include "horon/runtime/plan.h"
#include "horon/runtime/submission.h"

namespace horon {

// The packer: owns the memory of one lane's buckets and copies tensors into and out of it. Tensors
// that already lie in the bucket's memory are used in place. Only the driving thread calls it.
class BucketPacker {
 public:
  // The packed bytes of a transfer. Valid until the bucket is packed again.
  struct Packed {
    Bucket layout = {};         // of the bucket; empty for a single operation
    BufferView whole = {};      // the whole bucket, or a single operation's own input
    bool is_ready = true;       // device memory: now; else after the device's default stream
    bool leaves = false;        // results must be copied to the outputs
    uint64_t bytes_copied = 0;  // in and, after unpack(), out
  };

  // `mover` allocates. `mover` and `device` outlive the packer; `device` null: host memory only.
  BucketPacker(const Mover& mover, DeviceRuntime* device) : mover_(mover), device_(device) {}

  // Allocates memory for the plan's declared buckets and replaces the previous one, which stays
  // valid while it is owned. Appends it to `buckets`; views[i] is where specs[i] lies in it.
  void declare(const std::vector<TensorSpec>& specs, const Plan& plan,
               std::vector<OwnedBuffer>& buckets, std::vector<BufferView>& views);

  // Copies the inputs of all items of the plan's bucket into its memory.
  Packed pack(const std::vector<Submission>& items, const Plan& plan, int bucket);
  // Copies the results to outputs that lie elsewhere.
  void unpack(const std::vector<Submission>& items, const Packed& packed) const;

 private:
  struct Memory {
    OwnedBuffer buffer;
    uint64_t key = 0;  // of the bucket it was made for
  };
  BufferView memory_of(const Plan& plan, int bucket);

  const Mover& mover_;
  DeviceRuntime* device_;
  std::vector<OwnedBuffer> declared_;  // memory of the plan's declared buckets
  std::map<int, Memory> others_;       // by bucket number
};

}  // namespace horon
