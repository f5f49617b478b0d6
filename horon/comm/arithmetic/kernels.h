#pragma once

#include <cstddef>
#include <cstdint>

// Raw kernels, compiled three times from kernels_impl.h with different instruction sets. Only plain
// C types: if an inline function of the standard library were compiled here with AVX-512, the
// linker might keep that copy for the whole program.
namespace horon::kernels {

struct Args {
  const void* const* in;
  size_t n_in;
  void* const* out;
  size_t n_out;
  size_t count;
  uint32_t divisor;  // 0: none
};

struct InstructionCode {
  uint8_t kind;
  uint32_t a;
  uint32_t b;
};

struct TreeArgs {
  Args args;
  const InstructionCode* instructions;
  size_t n_instructions;
};

// Indexed by DType (10) and by operation: sum, min, max, product, average.
struct Table {
  const char* name;
  void (*reduce[10][5])(const Args&);
  void (*tree_f32)(const TreeArgs&);
  void (*tree_f64)(const TreeArgs&);
  // Between a type and the one its sums are made in; null where that is the type itself.
  void (*widen[10])(const void* from, void* to, size_t count);
  void (*narrow[10])(const void* from, void* to, size_t count);
};

const Table& generic_table();
const Table& avx2_table();
const Table& avx512_table();

constexpr size_t kMaxTreeDepth = 24;  // more than log2 of any number of shards in one job

}  // namespace horon::kernels
