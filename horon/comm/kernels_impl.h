// Included by kernels_generic.cc, kernels_avx2.cc and kernels_avx512.cc; HORON_KERNELS names the
// table, HORON_F16C says that the CPU converts halves. Everything is in an anonymous namespace.
#include "horon/comm/kernels_types.h"

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

// 64 bytes at any address. The compiler does not make vectors of the loop below by itself: it gives
// up on so many pointers that may be the same.
template <typename T>
struct Lanes {
  typedef T Type __attribute__((vector_size(64), aligned(alignof(T)), may_alias));
};

// N loads, one sum, N (in place) or 1 stores, in registers. In place the outputs are the inputs, so
// a line that was just read is written: no extra memory traffic.
template <typename T, size_t kIn, size_t kOut, bool kDivides>
void sum_fused(const Args& args) {
  using Vector = typename Lanes<T>::Type;
  constexpr size_t kLanes = sizeof(Vector) / sizeof(T);
  const T* in[kIn];
  T* out[kOut];
  for (size_t k = 0; k < kIn; ++k) in[k] = static_cast<const T*>(args.in[k]);
  for (size_t k = 0; k < kOut; ++k) out[k] = static_cast<T*>(args.out[k]);
  const T by = static_cast<T>(kDivides ? args.divisor : 1);
  const auto run = [&]<typename V>(size_t i) {
    V sum = *reinterpret_cast<const V*>(in[0] + i);
    for (size_t k = 1; k < kIn; ++k) sum += *reinterpret_cast<const V*>(in[k] + i);
    if constexpr (kDivides) sum /= by;
    for (size_t k = 0; k < kOut; ++k) *reinterpret_cast<V*>(out[k] + i) = sum;
  };
  const size_t count = args.count;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) run.template operator()<Vector>(i);
  for (; i < count; ++i) run.template operator()<T>(i);
}

template <typename T, size_t kIn, size_t kOut>
void sum_fused(const Args& args) {
  return args.divisor != 0 ? sum_fused<T, kIn, kOut, true>(args)
                           : sum_fused<T, kIn, kOut, false>(args);
}

template <typename T, size_t kIn>
bool try_fused(const Args& args) {
  if (args.n_in != kIn) return false;
  if (args.n_out == kIn) {
    sum_fused<T, kIn, kIn>(args);
  } else if (args.n_out == 2) {
    sum_fused<T, kIn, 2>(args);
  } else if (args.n_out == 1) {
    sum_fused<T, kIn, 1>(args);
  } else {
    return false;
  }
  return true;
}

template <typename T>
void sum_float(const Args& args) {
  const bool done = try_fused<T, 2>(args) || try_fused<T, 3>(args) || try_fused<T, 4>(args) ||
                    try_fused<T, 5>(args) || try_fused<T, 6>(args) || try_fused<T, 7>(args) ||
                    try_fused<T, 8>(args);
  if (!done) reduce_blocks<T, Sum, false>(args);
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
void run_step(const TreeArgs& tree, const StepCode& step, T (*stack)[kBlock], size_t& depth,
              size_t base, size_t n) {
  const auto leaf = [&](uint32_t index) {
    return static_cast<const T*>(tree.args.in[index]) + base;
  };
  if (step.kind == 0) {
    std::memcpy(stack[depth++], leaf(step.a), n * sizeof(T));
  } else if (step.kind == 1) {
    const T* a = leaf(step.a);
    const T* b = leaf(step.b);
    T* top = stack[depth++];
    for (size_t i = 0; i < n; ++i) top[i] = a[i] + b[i];
  } else {
    if (step.kind == 3) --depth;
    const T* other = step.kind == 2 ? leaf(step.a) : stack[depth];
    T* top = stack[depth - 1];
    for (size_t i = 0; i < n; ++i) top[i] += other[i];
  }
}

template <typename T>
void tree(const TreeArgs& tree) {
  const Args& args = tree.args;
  if (tree.n_steps == 1 && tree.steps[0].kind == 1 && args.n_out <= 2 && args.n_out > 0) {
    const auto* a = static_cast<const T*>(args.in[tree.steps[0].a]);
    const auto* b = static_cast<const T*>(args.in[tree.steps[0].b]);
    return args.n_out == 1 ? tree_of_two<T, 1>(args, a, b) : tree_of_two<T, 2>(args, a, b);
  }
  alignas(64) T stack[kMaxTreeDepth][kBlock];
  const T by = static_cast<T>(args.divisor == 0 ? 1 : args.divisor);
  for (size_t base = 0; base < args.count; base += kBlock) {
    const size_t n = args.count - base < kBlock ? args.count - base : kBlock;
    size_t depth = 0;
    for (size_t s = 0; s < tree.n_steps; ++s)
      run_step<T>(tree, tree.steps[s], stack, depth, base, n);
    for (size_t i = 0; i < n; ++i) stack[0][i] = canonical_nan<T>(stack[0][i] / by);
    store_everywhere<T>(args, base, n, stack[0]);
  }
}

#define HORON_ROW(T, sum)                                             \
  {                                                                   \
    sum, reduce_blocks<T, Min, false>, reduce_blocks<T, Max, false>,  \
        reduce_blocks<T, Product, false>, reduce_blocks<T, Sum, true> \
  }
#define HORON_INTEGER_ROW(T) HORON_ROW(T, (reduce_blocks<T, Sum, false>))

}  // namespace

const Table& HORON_KERNELS() {
  static const Table kTable = {
      HORON_KERNEL_NAME,
      {HORON_INTEGER_ROW(uint8_t),
       HORON_INTEGER_ROW(int8_t),
       HORON_INTEGER_ROW(int16_t),
       HORON_INTEGER_ROW(int32_t),
       HORON_INTEGER_ROW(int64_t),
       HORON_ROW(F16, (reduce_blocks<F16, Sum, false>)),
       HORON_ROW(BF16, (reduce_blocks<BF16, Sum, false>)),
       HORON_ROW(float, sum_float<float>),
       HORON_ROW(double, sum_float<double>),
       {reduce_blocks<Bool, Or, false>, reduce_blocks<Bool, And, false>,
        reduce_blocks<Bool, Or, false>, reduce_blocks<Bool, And, false>, nullptr}},
      tree<float>,
      tree<double>};
  return kTable;
}

}  // namespace horon::kernels
