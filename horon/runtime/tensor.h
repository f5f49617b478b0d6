#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "horon/comm/types.h"

namespace horon {

// What ranks must agree on before a named operation can run.
struct TensorSpec {
  std::string name;
  OpKind kind = OpKind::kAllReduce;
  DType dtype = DType::kF32;
  uint64_t count = 0;  // elements
  Device device = {};  // where it lies; its index is each rank's own
  ReduceOp op = ReduceOp::kSum;
  Reduction reduction = Reduction::kFast;
  int32_t root = 0;
  double prescale = 1.0;   // factor on what goes in
  double postscale = 1.0;  // factor on what comes out
  int32_t priority = 0;    // higher: needed earlier
  uint64_t layout = 0;     // hash of what else must be equal: parts of a group, shards
  std::string codec;       // empty: the numbers as they are

  bool operator==(const TensorSpec&) const = default;
};

// Equal as far as ranks must agree: sizes of gathers and all-to-alls are each rank's own.
bool same_request(const TensorSpec& a, const TensorSpec& b);
// May share a bucket.
bool can_fuse(const TensorSpec& a, const TensorSpec& b);
// "all_reduce sum f32[256] 'fc.weight'"
std::string describe(const TensorSpec& spec);

std::string pack_specs(const std::vector<TensorSpec>& specs);
// Throws Error (exit code 10) for anything that pack_specs would not have made.
std::vector<TensorSpec> unpack_specs(std::string_view bytes);

}  // namespace horon
