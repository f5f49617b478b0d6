#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "horon/comm/arithmetic/exact_tree.h"
#include "horon/comm/types.h"

// Arithmetic on host memory. The widest instruction set of the CPU is selected once, at run time;
// all give the same bits. Nothing here allocates or blocks. Thread-safe.
namespace horon {

// out[k][i] = in[0][i] op in[1][i] op ..., for every k; an average then divides by `divisor`.
// Outputs may be the inputs themselves. f16 and bf16 accumulate in f32 and round once; integer sums
// wrap around, integer averages are summed in 64 bits and truncated; bool: sum and max are "or",
// product and min are "and". min and max propagate NaN.
struct ReduceJob {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  uint32_t divisor = 1;
  std::span<const void* const> in = {};
  std::span<void* const> out = {};
  uint64_t count = 0;
};
void reduce(const ReduceJob& job);

// The canonical tree (exact_tree.h) over in[leaf]; f32 and f64. An average divides by `divisor`;
// every NaN becomes the one canonical NaN.
struct TreeJob {
  DType dtype = DType::kF32;
  uint32_t divisor = 1;
  std::span<const TreeInstruction> instructions = {};
  std::span<const void* const> in = {};
  std::span<void* const> out = {};
  uint64_t count = 0;
};
void reduce_tree(const TreeJob& job);

// The type in which values of this type are summed: f32 for f16 and bf16, i64 for integers, else
// the type itself.
DType wide_type(DType dtype);
// Converts to wide_type(dtype) and back: 16-bit floats are rounded to nearest even, integers cut
// off. The type itself: copies.
void widen(DType dtype, const void* from, void* to, uint64_t count);
void narrow(DType dtype, const void* from, void* to, uint64_t count);

// to[i] += from[i], f32 and f64: one fold of an exact sum.
void accumulate(DType dtype, void* to, const void* from, uint64_t count);

// "avx512", "avx2" or "generic".
std::string_view kernel_name();
// The kernels that this CPU supports; the tests compare them.
std::span<const std::string_view> kernel_names();
// reduce() with the named kernels.
void reduce_with(std::string_view kernels, const ReduceJob& job);

}  // namespace horon
