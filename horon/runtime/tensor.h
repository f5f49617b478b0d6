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
  int32_t priority = 0;    // above 0: urgent; ranks agree on that alone
  std::string layout;  // what else must be equal, for people: parts of a group, shards; or empty
  std::string codec;   // empty: the numbers as they are
  uint64_t tag = 0;    // of the caller's, whatever it means to it

  bool is_urgent() const { return priority > 0; }
  bool operator==(const TensorSpec&) const = default;
};

// Equal as far as ranks must agree: sizes of gathers and all-to-alls are each rank's own.
bool same_request(const TensorSpec& a, const TensorSpec& b);
// May share a bucket.
bool can_fuse(const TensorSpec& a, const TensorSpec& b);
// "all_reduce sum f32[256] 'fc.weight'": everything that same_request compares.
std::string describe(const TensorSpec& spec);
// A layout of any length as one that fits into a message; different ones stay different.
std::string short_layout(std::string text);

std::string pack_specs(const std::vector<TensorSpec>& specs);
// Throws Error (exit code 10) for anything that pack_specs would not have made.
std::vector<TensorSpec> unpack_specs(std::string_view bytes);

}  // namespace horon
