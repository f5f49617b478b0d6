#include "horon/codec/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/device/half.h"

namespace horon {

size_t Codec::max_bytes(size_t count, Segments) const { return count * size_of(wire_dtype()); }

void Codec::decode_add(std::span<const std::byte> wire, Segments segments,
                       std::span<float> out) const {
  std::vector<float> one(out.size());
  decode(wire, segments, one);
  for (size_t i = 0; i < out.size(); ++i) out[i] += one[i];
}

namespace {

constexpr uint64_t kWorthAThread = 1U << 18;  // numbers
constexpr std::string_view kFeedback = "+feedback";

void check_size(const std::string& codec, size_t got, size_t wanted) {
  if (got == wanted) return;
  throw Error(fmt::format("codec {}: {} bytes on the wire, {} expected", codec, got, wanted),
              ExitCode::kPeer);
}

class None final : public Codec {
 public:
  std::string name() const override { return "none"; }
  bool is_dense() const override { return true; }
  DType wire_dtype() const override { return DType::kF32; }
  size_t encode(std::span<const float> in, Segments, std::span<std::byte> out) override {
    std::ranges::copy(std::as_bytes(in), out.begin());
    return in.size_bytes();
  }
  void decode(std::span<const std::byte> wire, Segments, std::span<float> out) const override {
    check_size(name(), wire.size(), out.size_bytes());
    std::ranges::copy(wire, std::as_writable_bytes(out).begin());
  }
};

void narrow_bf16(const float* in, uint16_t* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = float_to_bf16(in[i]);
}
void widen_bf16(const uint16_t* in, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = bf16_to_float(in[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) size_t narrow_f16_fast(const float* in, uint16_t* out,
                                                           size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
  return i;
}
__attribute__((target("avx,f16c"))) size_t widen_f16_fast(const uint16_t* in, float* out,
                                                          size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
  }
  return i;
}
// Asks the processor (cpuid): not every compiler's __builtin_cpu_supports has this name.
bool has_f16c() {
  static const bool kHas = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __builtin_cpu_supports("avx") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
           (c & bit_F16C) != 0;
  }();
  return kHas;
}
#else
size_t narrow_f16_fast(const float*, uint16_t*, size_t) { return 0; }
size_t widen_f16_fast(const uint16_t*, float*, size_t) { return 0; }
bool has_f16c() { return false; }
#endif

void narrow_f16(const float* in, uint16_t* out, size_t count) {
  size_t i = has_f16c() ? narrow_f16_fast(in, out, count) : 0;
  for (; i < count; ++i) out[i] = float_to_f16(in[i]);
}
void widen_f16(const uint16_t* in, float* out, size_t count) {
  size_t i = has_f16c() ? widen_f16_fast(in, out, count) : 0;
  for (; i < count; ++i) out[i] = f16_to_float(in[i]);
}

// 16 bits a number. fp16: relative error up to 2^-11, values beyond 65504 become infinite, below
// 2^-24 zero. bf16: relative error up to 2^-8, the range of f32.
class SixteenBits final : public Codec {
 public:
  explicit SixteenBits(bool brain) : brain_(brain) {}
  std::string name() const override { return brain_ ? "bf16" : "fp16"; }
  bool is_dense() const override { return true; }
  DType wire_dtype() const override { return brain_ ? DType::kBF16 : DType::kF16; }
  size_t encode(std::span<const float> in, Segments, std::span<std::byte> out) override {
    auto* wire = reinterpret_cast<uint16_t*>(out.data());
    parallel_for(in.size(), kWorthAThread, context().threads, [&](uint64_t first, uint64_t last) {
      (brain_ ? narrow_bf16 : narrow_f16)(in.data() + first, wire + first, last - first);
    });
    return in.size() * sizeof(uint16_t);
  }
  void decode(std::span<const std::byte> wire, Segments, std::span<float> out) const override {
    check_size(name(), wire.size(), out.size() * sizeof(uint16_t));
    const auto* from = reinterpret_cast<const uint16_t*>(wire.data());
    parallel_for(out.size(), kWorthAThread, context().threads, [&](uint64_t first, uint64_t last) {
      (brain_ ? widen_bf16 : widen_f16)(from + first, out.data() + first, last - first);
    });
  }

 private:
  bool brain_;
};

// Adds what the inner codec loses to the next step's values of the same tensor.
class Feedback final : public Codec {
 public:
  explicit Feedback(std::unique_ptr<Codec> inner)
      : inner_(std::move(inner)), own_(inner_->state().size()) {}
  std::string name() const override { return inner_->name() + std::string(kFeedback); }
  bool is_dense() const override { return inner_->is_dense(); }
  DType wire_dtype() const override { return inner_->wire_dtype(); }
  // The inner codec's arrays come first, at the positions that it expects.
  std::vector<std::string> state() const override {
    std::vector<std::string> names = inner_->state();
    names.emplace_back("lost");
    return names;
  }
  size_t max_bytes(size_t count, Segments segments) const override {
    return inner_->max_bytes(count, segments);
  }
  void set_context(const CodecContext& context) override {
    Codec::set_context(context);
    inner_->set_context(context);
  }
  // Dense encodings can be put together from those of the tensors, which stay in the cache.
  size_t encode(std::span<const float> in, Segments segments, std::span<std::byte> out) override {
    if (!is_dense()) return encode_array(in, segments, out);
    const size_t width = size_of(wire_dtype());
    for (Segment one : segments) {
      const uint64_t first = std::exchange(one.offset, 0);
      encode_array(in.subspan(first, one.count), {&one, 1},
                   out.subspan(first * width, one.count * width));
    }
    return in.size() * width;
  }
  void decode(std::span<const std::byte> wire, Segments segments,
              std::span<float> out) const override {
    inner_->decode(wire, segments, out);
  }
  void decode_add(std::span<const std::byte> wire, Segments segments,
                  std::span<float> out) const override {
    inner_->decode_add(wire, segments, out);
  }

 private:
  size_t encode_array(std::span<const float> in, Segments segments, std::span<std::byte> out) {
    whole_.resize(in.size());
    kept_.resize(in.size());
    each(segments, [&](const Segment& segment, uint64_t first, uint64_t last) {
      const float* lost = segment.array(own_).data();
      const float* from = in.data() + segment.offset;
      float* to = whole_.data() + segment.offset;
      for (uint64_t i = first; i < last; ++i) to[i] = lost[i] + from[i];
    });
    const size_t used = inner_->encode(whole_, segments, out);
    inner_->decode(out.first(used), segments, kept_);
    each(segments, [&](const Segment& segment, uint64_t first, uint64_t last) {
      float* lost = segment.array(own_).data();
      const float* from = whole_.data() + segment.offset;
      const float* sent = kept_.data() + segment.offset;
      for (uint64_t i = first; i < last; ++i) {
        const float rest = from[i] - sent[i];
        lost[i] = rest - rest == 0.0F ? rest : 0.0F;  // an infinity or NaN is not carried on
      }
    });
    return used;
  }
  template <typename Body>
  void each(Segments segments, const Body& body) const {
    for (const Segment& segment : segments) {
      parallel_for(segment.count, kWorthAThread, context().threads,
                   [&](uint64_t first, uint64_t last) { body(segment, first, last); });
    }
  }

  std::unique_ptr<Codec> inner_;
  size_t own_;                // which array of a segment's state is ours
  std::vector<float> whole_;  // including earlier compression errors
  std::vector<float> kept_;
};

}  // namespace

CodecRegistry::CodecRegistry() : codecs_("codec") {
  add("none", [] { return std::make_unique<None>(); });
  add("fp16", [] { return std::make_unique<SixteenBits>(false); });
  add("bf16", [] { return std::make_unique<SixteenBits>(true); });
}

void CodecRegistry::add(const std::string& name, Factory factory) {
  require(!name.empty() && name.find('+') == std::string::npos,
          fmt::format("codec '{}': a name is not empty and has no '+'", name));
  codecs_.add(name, std::move(factory));
}

std::unique_ptr<Codec> CodecRegistry::make(std::string_view name) const {
  const bool feedback = name.ends_with(kFeedback);
  if (feedback) name.remove_suffix(kFeedback.size());
  auto codec = codecs_.find(std::string(name))();
  return feedback ? std::make_unique<Feedback>(std::move(codec)) : std::move(codec);
}

std::vector<std::string> CodecRegistry::names() const {
  std::vector<std::string> names = codecs_.names();
  for (const std::string& name : codecs_.names()) names.push_back(name + std::string(kFeedback));
  return names;
}

}  // namespace horon
