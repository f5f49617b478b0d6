// Element types, operations and conversions of the kernels; included only by kernels_impl.h.
#include <cstring>

#include "horon/comm/arithmetic/kernels.h"
#include "horon/device/half.h"
#ifdef HORON_F16C
#include <immintrin.h>
#endif

namespace horon::kernels {
namespace {

constexpr size_t kBlock = 1024;  // elements: an f32 block is 4 KB, several fit into the first cache

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct Bool {
  uint8_t value;
};

// The accumulator type per operation; integers accumulate as unsigned: they wrap around.
template <typename T, bool kWide>
struct Accumulator {
  using Type = T;
};
template <>
struct Accumulator<F16, false> {
  using Type = float;
};
template <>
struct Accumulator<BF16, false> {
  using Type = float;
};
template <>
struct Accumulator<Bool, false> {
  using Type = uint8_t;
};
template <>
struct Accumulator<F16, true> {
  using Type = float;
};
template <>
struct Accumulator<BF16, true> {
  using Type = float;
};
#define HORON_WIDE(T)           \
  template <>                   \
  struct Accumulator<T, true> { \
    using Type = int64_t;       \
  };
HORON_WIDE(uint8_t)
HORON_WIDE(int8_t)
HORON_WIDE(int16_t)
HORON_WIDE(int32_t)
HORON_WIDE(int64_t)
#undef HORON_WIDE

template <typename T>
constexpr bool kIsFloat = __is_same(T, float) || __is_same(T, double) || __is_same(T, F16) ||
                          __is_same(T, BF16);
template <typename T>
struct Unsigned {
  using Type = T;
};
template <>
struct Unsigned<int8_t> {
  using Type = uint8_t;
};
template <>
struct Unsigned<int16_t> {
  using Type = uint16_t;
};
template <>
struct Unsigned<int32_t> {
  using Type = uint32_t;
};
template <>
struct Unsigned<int64_t> {
  using Type = uint64_t;
};

// kSelects: the result is one of the inputs.
struct Sum {
  static constexpr bool kSelects = false;
  template <typename A>
  static A apply(A a, A b) {
    using U = typename Unsigned<A>::Type;
    return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
  }
};
struct Product {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (!kIsFloat<A>) {  // through 64 bits: uint16_t * uint16_t would overflow an int
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    } else {
      return a * b;
    }
  }
};
struct Min {
  static constexpr bool kSelects = true;
  template <typename A>
  static A apply(A a, A b) {
    const A other = a != a ? a : b;
    return a < other ? a : other;
  }
};
struct Max {
  static constexpr bool kSelects = true;
  template <typename A>
  static A apply(A a, A b) {
    const A other = a != a ? a : b;
    return a > other ? a : other;
  }
};
struct Or {
  template <typename A>
  static A apply(A a, A b) {
    return static_cast<A>(a | b);
  }
};
struct And {
  template <typename A>
  static A apply(A a, A b) {
    return static_cast<A>(a & b);
  }
};

template <typename T, typename A>
void load_block(A* to, const T* from, size_t n) {
  if constexpr (__is_same(T, F16)) {
    size_t i = 0;
#ifdef HORON_F16C
    for (; i + 8 <= n; i += 8) {
      const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(half));
    }
#endif
    for (; i < n; ++i) to[i] = f16_to_float(from[i].bits);
  } else if constexpr (__is_same(T, BF16)) {
    for (size_t i = 0; i < n; ++i) to[i] = bf16_to_float(from[i].bits);
  } else if constexpr (__is_same(T, Bool)) {
    for (size_t i = 0; i < n; ++i) to[i] = from[i].value != 0 ? 1 : 0;
  } else {
    for (size_t i = 0; i < n; ++i) to[i] = static_cast<A>(from[i]);
  }
}

template <typename T, typename A>
void store_block(T* to, const A* from, size_t n) {
  if constexpr (__is_same(T, F16)) {
    size_t i = 0;
#ifdef HORON_F16C
    for (; i + 8 <= n; i += 8) {
      const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), half);
    }
#endif
    for (; i < n; ++i) to[i].bits = float_to_f16(from[i]);
  } else if constexpr (__is_same(T, BF16)) {
    for (size_t i = 0; i < n; ++i) to[i].bits = float_to_bf16(from[i]);
  } else if constexpr (__is_same(T, Bool)) {
    for (size_t i = 0; i < n; ++i) to[i].value = from[i];
  } else {
    for (size_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
  }
}

}  // namespace
}  // namespace horon::kernels
