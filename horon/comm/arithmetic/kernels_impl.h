// Included by kernels_generic.cc, kernels_avx2.cc and kernels_avx512.cc; HORON_KERNELS names the
// table, HORON_F16C says that the CPU converts halves, HORON_VECTOR_BYTES how wide its vectors are.
// Everything is in an anonymous namespace.
#include "horon/comm/arithmetic/kernels_types.h"

// after the types
#include "horon/comm/arithmetic/kernels_fused.h"

namespace horon::kernels {
namespace {

template <typename A>
void divide_block(A* data, size_t n, uint32_t divisor) {
  const A by = static_cast<A>(divisor);
  for (size_t i = 0; i < n; ++i) data[i] = static_cast<A>(data[i] / by);
}

template <typename T>
void store_everywhere(const Args& args, size_t base, size_t n, const void* block) {
  for (size_t k = 0; k < args.n_out; ++k) {
    std::memcpy(static_cast<T*>(args.out[k]) + base, block, n * sizeof(T));
  }
}

// Any type, any operation, any number of inputs: through blocks that stay in the first cache.
template <typename T, typename Op, bool kWide>
void reduce_blocks(const Args& args) {
  using A = typename Accumulator<T, kWide>::Type;
  alignas(64) A sum[kBlock];
  alignas(64) A next[kBlock];
  alignas(64) T result[kBlock];
  for (size_t base = 0; base < args.count; base += kBlock) {
    const size_t n = args.count - base < kBlock ? args.count - base : kBlock;
    load_block(sum, static_cast<const T*>(args.in[0]) + base, n);
    for (size_t k = 1; k < args.n_in; ++k) {
      load_block(next, static_cast<const T*>(args.in[k]) + base, n);
      for (size_t i = 0; i < n; ++i) sum[i] = Op::apply(sum[i], next[i]);
    }
    if (args.divisor != 0) divide_block(sum, n, args.divisor);
    store_block(result, sum, n);
    store_everywhere<T>(args, base, n, result);
  }
}

// In registers if possible.
template <typename T, typename Op>
void reduce_few(const Args& args) {
  if constexpr (kHasPacket<T>) {
    if (args.n_in <= kMaxFused && args.n_out <= kMaxFused) return reduce_fused<T, Op>(args);
  }
  reduce_blocks<T, Op, false>(args);
}

template <typename T>
T canonical_nan(T value);
template <>
[[maybe_unused]] float canonical_nan(float value) {
  return value == value ? value : std::bit_cast<float>(0x7fc00000U);
}
template <>
[[maybe_unused]] double canonical_nan(double value) {
  return value == value ? value : std::bit_cast<double>(0x7ff8000000000000ULL);
}

// Two leaves: the common case of one aligned block of shards on each of two ranks.
template <typename T, size_t kOut>
void tree_of_two(const Args& args, const T* a, const T* b) {
  T* out[kOut];
  for (size_t k = 0; k < kOut; ++k) out[k] = static_cast<T*>(args.out[k]);
  const T by = static_cast<T>(args.divisor == 0 ? 1 : args.divisor);
  const size_t count = args.count;
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    const T sum = canonical_nan<T>((a[i] + b[i]) / by);
    for (size_t k = 0; k < kOut; ++k) out[k][i] = sum;
  }
}

template <typename T>
void run_instruction(const TreeArgs& tree, const InstructionCode& instruction, T (*stack)[kBlock],
                     size_t& depth, size_t base, size_t n) {
  const auto leaf = [&](uint32_t index) {
    return static_cast<const T*>(tree.args.in[index]) + base;
  };
  if (instruction.kind == 0) {
    std::memcpy(stack[depth++], leaf(instruction.a), n * sizeof(T));
  } else if (instruction.kind == 1) {
    const T* a = leaf(instruction.a);
    const T* b = leaf(instruction.b);
    T* top = stack[depth++];
    for (size_t i = 0; i < n; ++i) top[i] = a[i] + b[i];
  } else {
    if (instruction.kind == 3) --depth;
    const T* other = instruction.kind == 2 ? leaf(instruction.a) : stack[depth];
    T* top = stack[depth - 1];
    for (size_t i = 0; i < n; ++i) top[i] += other[i];
  }
}

template <typename T>
void tree(const TreeArgs& tree) {
  const Args& args = tree.args;
  if (tree.n_instructions == 1 && tree.instructions[0].kind == 1 && args.n_out <= 2 &&
      args.n_out > 0) {
    const auto* a = static_cast<const T*>(args.in[tree.instructions[0].a]);
    const auto* b = static_cast<const T*>(args.in[tree.instructions[0].b]);
    return args.n_out == 1 ? tree_of_two<T, 1>(args, a, b) : tree_of_two<T, 2>(args, a, b);
  }
  alignas(64) T stack[kMaxTreeDepth][kBlock];
  const T by = static_cast<T>(args.divisor == 0 ? 1 : args.divisor);
  for (size_t base = 0; base < args.count; base += kBlock) {
    const size_t n = args.count - base < kBlock ? args.count - base : kBlock;
    size_t depth = 0;
    for (size_t s = 0; s < tree.n_instructions; ++s)
      run_instruction<T>(tree, tree.instructions[s], stack, depth, base, n);
    for (size_t i = 0; i < n; ++i) stack[0][i] = canonical_nan<T>(stack[0][i] / by);
    store_everywhere<T>(args, base, n, stack[0]);
  }
}

template <typename T>
void widen(const void* from, void* to, size_t count) {
  using A = typename Accumulator<T, true>::Type;
  load_block(static_cast<A*>(to), static_cast<const T*>(from), count);
}

template <typename T>
void narrow(const void* from, void* to, size_t count) {
  using A = typename Accumulator<T, true>::Type;
  store_block(static_cast<T*>(to), static_cast<const A*>(from), count);
}

#define HORON_CONVERSIONS(F)                                                                   \
  {                                                                                            \
    F<uint8_t>, F<int8_t>, F<int16_t>, F<int32_t>, nullptr, F<F16>, F<BF16>, nullptr, nullptr, \
        nullptr                                                                                \
  }

// `S` is what T is summed as: integers without a sign, which wrap around.
#define HORON_ROW(T, S)                                                                           \
  {                                                                                               \
    reduce_few<S, Sum>, reduce_few<T, Min>, reduce_few<T, Max>, reduce_blocks<T, Product, false>, \
        reduce_blocks<T, Sum, true>                                                               \
  }

}  // namespace

const Table& HORON_KERNELS() {
  static const Table kTable = {
      HORON_KERNEL_NAME,
      {HORON_ROW(uint8_t, uint8_t),
       HORON_ROW(int8_t, uint8_t),
       HORON_ROW(int16_t, uint16_t),
       HORON_ROW(int32_t, uint32_t),
       HORON_ROW(int64_t, uint64_t),
       HORON_ROW(F16, F16),
       HORON_ROW(BF16, BF16),
       HORON_ROW(float, float),
       HORON_ROW(double, double),
       {reduce_blocks<Bool, Or, false>, reduce_blocks<Bool, And, false>,
        reduce_blocks<Bool, Or, false>, reduce_blocks<Bool, And, false>, nullptr}},
      tree<float>,
      tree<double>,
      HORON_CONVERSIONS(widen),
      HORON_CONVERSIONS(narrow)};
  return kTable;
}

}  // namespace horon::kernels
