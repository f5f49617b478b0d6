#pragma once

#include <cstddef>
#include <cstdint>

// Raw kernels, compiled three times from kernels_impl.h with different instruction sets. Plain C
// types only: an inline function of the standard library compiled here with AVX-512 could be the
// copy that the linker keeps for everybody.
namespace horon::kernels {

struct Args {
  const void* const* in;
  size_t n_in;
  void* const* out;
  size_t n_out;
  size_t count;
  uint32_t divisor;  // 0: none
};

struct StepCode {
  uint8_t kind;
  uint32_t a;
  uint32_t b;
};

struct TreeArgs {
  Args args;
  const StepCode* steps;
  size_t n_steps;
};

// Indexed by DType (10) and by operation: sum, min, max, product, average.
struct Table {
  const char* name;
  void (*reduce[10][5])(const Args&);
  void (*tree_f32)(const TreeArgs&);
  void (*tree_f64)(const TreeArgs&);
};

const Table& generic_table();
const Table& avx2_table();
const Table& avx512_table();

constexpr size_t kMaxTreeDepth = 24;  // more than log2 of any number of shards in one job

}  // namespace horon::kernels
