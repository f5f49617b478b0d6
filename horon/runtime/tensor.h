#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "horon/comm/types.h"

namespace horon {

// What ranks must agree on before a named operation can run. A value.
struct TensorSpec {
  std::string name;
  OpKind kind = OpKind::kAllReduce;
  DType dtype = DType::kF32;
  uint64_t count = 0;  // elements
  Device device = {};  // where the tensor is; the index may differ by rank
  ReduceOp op = ReduceOp::kSum;
  Reduction reduction = Reduction::kFast;
  int32_t root = 0;
  double prescale = 1.0;   // factor on the input
  double postscale = 1.0;  // factor on the output
  int32_t priority = 0;    // above 0: urgent; ranks agree only on whether it is
  std::string layout;      // what else must be equal, as text: parts of a group, shards; or empty
  std::string codec;       // empty: uncompressed
  uint64_t tag = 0;        // chosen by the caller; must be equal

  bool is_urgent() const { return priority > 0; }
  bool operator==(const TensorSpec&) const = default;
};

// Equal as far as ranks must agree: sizes of gathers and all-to-alls may differ by rank.
bool same_request(const TensorSpec& a, const TensorSpec& b);
// Whether both may share a bucket.
bool can_fuse(const TensorSpec& a, const TensorSpec& b);
// "all_reduce sum f32[256] 'fc.weight'": everything that same_request compares.
std::string describe(const TensorSpec& spec);
// Shortens a layout so that it fits into a message; different layouts stay different.
std::string short_layout(std::string text);

std::string pack_specs(const std::vector<TensorSpec>& specs);
// Throws Error (exit code 10) for bytes that pack_specs would not produce.
std::vector<TensorSpec> unpack_specs(std::string_view bytes);

}  // namespace horon
