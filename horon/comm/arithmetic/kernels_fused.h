// Sums, minima and maxima of a few arrays, in registers; included only by kernels_impl.h.
// HORON_VECTOR_BYTES is the width of the CPU's vectors: wider ones would be split and go through
// the stack (tests/kernels checks the machine code).
namespace horon::kernels {
namespace {

template <typename T>
struct Lanes {
  typedef T Type __attribute__((vector_size(HORON_VECTOR_BYTES)));
  // The same at any address, beside any other type.
  typedef T InMemory __attribute__((vector_size(HORON_VECTOR_BYTES), aligned(1), may_alias));
};
using Floats = Lanes<float>::Type;
using Words = Lanes<uint32_t>::Type;

// Elements that fill one vector in memory (Stored), and the kParts vectors in which they are
// computed.
template <typename T>
struct Packet {
  using Vector = typename Lanes<T>::Type;
  using Stored = typename Lanes<T>::InMemory;
  static constexpr size_t kParts = 1;
  static void unpack(Vector* to, const Stored& from) { *to = from; }
  template <typename Op>
  static Stored pack(const Vector* from) {
    return *from;
  }
};

// The halves of a 32-bit word are the upper halves of two floats: elements stay in their lanes.
template <>
struct Packet<BF16> {
  using Vector = Floats;
  using Stored = Lanes<uint32_t>::InMemory;
  static constexpr size_t kParts = 2;
  static constexpr uint32_t kUpper = 0xffff0000U;
  static void unpack(Vector* to, const Stored& from) {
    const Words pairs = from;
    to[0] = reinterpret_cast<Floats>(pairs << 16);
    to[1] = reinterpret_cast<Floats>(pairs & kUpper);
  }
  template <typename Op>
  static Stored pack(const Vector* from) {
    return (upper<Op>(from[0]) >> 16) | upper<Op>(from[1]);
  }
  // As float_to_bf16, the result in the upper half and the lower one zero.
  template <typename Op>
  static Words upper(Floats value) {
    const Words bits = reinterpret_cast<Words>(value);
    if constexpr (Op::kSelects) return bits;  // one of the inputs: no rounding needed
    const Words half = 0x7fffU + ((bits >> 16) & 1U);
    return (bits + (reinterpret_cast<Words>(value == value) & half)) & kUpper;  // a NaN is cut
  }
};

#ifdef HORON_F16C
template <>
struct Packet<F16> {
  using Vector = Floats;
  static constexpr size_t kParts = 2;
#if HORON_VECTOR_BYTES == 64
  // With masks of all lanes: g++ 12 reports the undefined operand of the plain forms as a mistake.
  static constexpr __mmask16 kAll = 0xffff;
  struct Stored {
    __m256i_u half[2];
  };
  static void unpack(Vector* to, const Stored& from) {
    for (size_t p = 0; p < 2; ++p) to[p] = _mm512_maskz_cvtph_ps(kAll, from.half[p]);
  }
  template <typename Op>
  static Stored pack(const Vector* from) {
    return {_mm512_maskz_cvtps_ph(kAll, from[0], _MM_FROUND_TO_NEAREST_INT),
            _mm512_maskz_cvtps_ph(kAll, from[1], _MM_FROUND_TO_NEAREST_INT)};
  }
#else
  struct Stored {
    __m128i_u half[2];
  };
  static void unpack(Vector* to, const Stored& from) {
    for (size_t p = 0; p < 2; ++p) to[p] = _mm256_cvtph_ps(from.half[p]);
  }
  template <typename Op>
  static Stored pack(const Vector* from) {
    return {_mm256_cvtps_ph(from[0], _MM_FROUND_TO_NEAREST_INT),
            _mm256_cvtps_ph(from[1], _MM_FROUND_TO_NEAREST_INT)};
  }
#endif
};
#endif

template <typename T>
constexpr bool kHasPacket = true;
#ifndef HORON_F16C
template <>
constexpr bool kHasPacket<F16> = false;
#endif

constexpr size_t kMaxFused = 16;
constexpr size_t kAheadBytes = 1024;
constexpr size_t kAccumulators =
    4;  // vectors: enough to hide the overhead of the loops over arrays

// The arrays of one call, as a local copy: the compiler knows that no store to an array changes it
// and need not reload it.
template <typename T>
struct Arrays {
  const T* in[kMaxFused];
  T* out[kMaxFused];
  size_t n_in;
  size_t n_out;
};

// All inputs of kPackets packets at element i are read before the first output is written, so that
// outputs may be inputs; a line that was just read is written: no extra memory traffic.
template <typename T, typename Op, size_t kPackets>
__attribute__((always_inline)) inline void fuse(const Arrays<T>& arrays, size_t i,
                                                uint32_t divisor) {
  using P = Packet<T>;
  using Vector = typename P::Vector;
  using Stored = typename P::Stored;
  constexpr size_t kVectors = kPackets * P::kParts;
  const auto load = [&](Vector* to, const T* from) {
    const auto* stored = reinterpret_cast<const Stored*>(from + i);
    for (size_t p = 0; p < kPackets; ++p) {
      // Conversions fill the core's instruction window, so that it prefetches fewer lines.
      if constexpr (P::kParts > 1)
        __builtin_prefetch(reinterpret_cast<const char*>(stored + p) + kAheadBytes, 1);
      P::unpack(to + p * P::kParts, stored[p]);
    }
  };
  Vector sum[kVectors];
  load(sum, arrays.in[0]);
#pragma GCC unroll 1
  for (size_t k = 1; k < arrays.n_in; ++k) {
    Vector next[kVectors];
    load(next, arrays.in[k]);
    for (size_t v = 0; v < kVectors; ++v) sum[v] = Op::apply(sum[v], next[v]);
  }
  if constexpr (kIsFloat<T>) {
    using A = typename Accumulator<T, false>::Type;
    if (divisor != 0) {
      for (size_t v = 0; v < kVectors; ++v) sum[v] /= static_cast<A>(divisor);
    }
  }
  Stored result[kPackets];
  for (size_t p = 0; p < kPackets; ++p) result[p] = P::template pack<Op>(sum + p * P::kParts);
#pragma GCC unroll 1
  for (size_t k = 0; k < arrays.n_out; ++k) {
    auto* to = reinterpret_cast<Stored*>(arrays.out[k] + i);
    for (size_t p = 0; p < kPackets; ++p) to[p] = result[p];
  }
}

// Less than a packet: goes through local packets, so that every element gets the same arithmetic.
template <typename T, typename Op>
__attribute__((noinline)) void fuse_rest(const Arrays<T>& arrays, size_t i, size_t count,
                                         uint32_t divisor) {
  constexpr size_t kElements = HORON_VECTOR_BYTES / sizeof(T);
  T padded[kMaxFused][kElements];
  Arrays<T> copy{};
  copy.n_in = arrays.n_in;
  copy.n_out = 1;
  for (size_t k = 0; k < arrays.n_in; ++k) {
    std::memset(padded[k], 0, sizeof(padded[k]));
    std::memcpy(padded[k], arrays.in[k] + i, (count - i) * sizeof(T));
    copy.in[k] = padded[k];
  }
  copy.out[0] = padded[0];
  fuse<T, Op, 1>(copy, 0, divisor);
  for (size_t k = 0; k < arrays.n_out; ++k)
    std::memcpy(arrays.out[k] + i, padded[0], (count - i) * sizeof(T));
}

// Up to kMaxFused arrays in and out; `divisor` is for floats.
template <typename T, typename Op>
void reduce_fused(const Args& args) {
  constexpr size_t kElements = HORON_VECTOR_BYTES / sizeof(T);
  constexpr size_t kPackets = kAccumulators / Packet<T>::kParts;
  Arrays<T> arrays;
  arrays.n_in = args.n_in;
  arrays.n_out = args.n_out;
  for (size_t k = 0; k < args.n_in; ++k) arrays.in[k] = static_cast<const T*>(args.in[k]);
  for (size_t k = 0; k < args.n_out; ++k) arrays.out[k] = static_cast<T*>(args.out[k]);
  const size_t count = args.count;
  const uint32_t divisor = args.divisor;
  size_t i = 0;
  for (; i + kPackets * kElements <= count; i += kPackets * kElements)
    fuse<T, Op, kPackets>(arrays, i, divisor);
  for (; i + kElements <= count; i += kElements) fuse<T, Op, 1>(arrays, i, divisor);
  if (i < count) fuse_rest<T, Op>(arrays, i, count, divisor);
}

}  // namespace
}  // namespace horon::kernels
