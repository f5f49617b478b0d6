#include "horon/data/image/resample.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace horon {
namespace {

// Four floats at any address. Operations on it are the same, bit by bit, on every CPU.
typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

#if defined(__x86_64__)
#define HORON_AVX2 __attribute__((target("avx2")))
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
#else
#define HORON_AVX2
bool has_avx2() { return false; }
#endif
#define HORON_INLINE inline __attribute__((always_inline))

// Each loop once: as it is, and again for AVX2. No contraction, so the bits are the same.
HORON_INLINE void blend(const uint8_t* a, const uint8_t* b, float weight, float* out, int count) {
#pragma GCC ivdep
  for (int i = 0; i < count; ++i) {
    const float low = a[i];
    const float high = b[i];
    out[i] = low + (high - low) * weight;
  }
}
void blend_plain(const uint8_t* a, const uint8_t* b, float weight, float* out, int count) {
  blend(a, b, weight, out, count);
}
HORON_AVX2 void blend_fast(const uint8_t* a, const uint8_t* b, float weight, float* out,
                           int count) {
  blend(a, b, weight, out, count);
}

HORON_INLINE void convert(const uint8_t* row, float scale, float shift, float* out, int count) {
#pragma GCC ivdep
  for (int i = 0; i < count; ++i) out[i] = static_cast<float>(row[i]) * scale + shift;
}

constexpr int kWidest = 256;  // of the quick way below; wider images go the general way

// Row `y` of channel `c` of the crop: black outside the image, mirrored on request.
HORON_INLINE void crop_row(const PadCrop& job, int c, int y, uint8_t* to) {
  const int width = job.crop.width;
  const int first = std::max(job.crop.x, 0);
  const int last = std::min(job.crop.x + width, job.width);
  const int left = first - job.crop.x;
  std::memset(to, 0, static_cast<size_t>(width));
  if (y < 0 || y >= job.height || first >= last) return;
  const uint8_t* from = job.planar ? job.source +
                                         (static_cast<size_t>(c) * static_cast<size_t>(job.height) +
                                          static_cast<size_t>(y)) *
                                             static_cast<size_t>(job.width) +
                                         first
                                   : job.source +
                                         (static_cast<size_t>(y) * static_cast<size_t>(job.width) +
                                          static_cast<size_t>(first)) *
                                             3 +
                                         c;
  const ptrdiff_t step = job.planar ? 1 : 3;
  const int count = last - first;
  if (job.flip) {
    uint8_t* end = to + width - 1 - left;
#pragma GCC ivdep
    for (ptrdiff_t i = 0; i < count; ++i) end[-i] = from[i * step];
  } else if (step == 1) {
    std::memcpy(to + left, from, static_cast<size_t>(count));
  } else {
    for (ptrdiff_t i = 0; i < count; ++i) to[left + i] = from[i * step];
  }
}

HORON_INLINE void pad_crop(const PadCrop& job, float* out) {
  uint8_t row[kWidest];
  const auto width = static_cast<size_t>(job.crop.width);
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < job.crop.height; ++y, out += width) {
      crop_row(job, c, y + job.crop.y, row);
      convert(row, job.affine.scale[c], job.affine.shift[c], out, job.crop.width);
    }
  }
}
// CIFAR's size, which is known when this is compiled: a plane with its black frame, then rows of
// it.
constexpr int kSide = 32;
constexpr int kFrame = 8;
constexpr int kStride = kSide + 2 * kFrame;

bool is_cifar(const PadCrop& job) {
  return job.planar && job.width == kSide && job.height == kSide && job.crop.width == kSide &&
         job.crop.height == kSide && std::abs(job.crop.x) <= kFrame &&
         std::abs(job.crop.y) <= kFrame;
}

HORON_INLINE void cifar_plane(const PadCrop& job, const uint8_t* plane, float scale, float shift,
                              float* out) {
  // The frame stays black: only the image in it is written again.
  alignas(64) static thread_local uint8_t framed[(kSide + 2 * kFrame) * kStride];
  for (ptrdiff_t y = 0; y < kSide; ++y) {
    uint8_t* to = framed + (y + kFrame) * kStride + kFrame;
    const uint8_t* from = plane + y * kSide;
    if (job.flip) {
      for (int x = 0; x < kSide; ++x) to[kSide - 1 - x] = from[x];
    } else {
      std::memcpy(to, from, kSide);
    }
  }
  // Mirrored: the crop's window is, too.
  const int x = job.flip ? -job.crop.x : job.crop.x;
  const uint8_t* first = framed + (ptrdiff_t{job.crop.y} + kFrame) * kStride + x + kFrame;
  for (ptrdiff_t y = 0; y < kSide; ++y, out += kSide) {
    for (int i = 0; i < kSide; ++i)
      out[i] = static_cast<float>(first[y * kStride + i]) * scale + shift;
  }
}

HORON_INLINE void pad_crop_any(const PadCrop& job, float* out) {
  if (!is_cifar(job)) return pad_crop(job, out);
  for (ptrdiff_t c = 0; c < 3; ++c)
    cifar_plane(job, job.source + c * kSide * kSide, job.affine.scale[c], job.affine.shift[c],
                out + c * kSide * kSide);
}
void pad_crop_plain(const PadCrop& job, float* out) { pad_crop_any(job, out); }
HORON_AVX2 void pad_crop_fast(const PadCrop& job, float* out) { pad_crop_any(job, out); }

HORON_INLINE void to_planes(const float* row, int width, const Affine& affine, float* out,
                            uint64_t plane) {
  float* red = out;
  float* green = out + plane;
  float* blue = out + 2 * plane;
#pragma GCC ivdep
  for (ptrdiff_t j = 0; j < width; ++j) {
    red[j] = row[3 * j] * affine.scale[0] + affine.shift[0];
    green[j] = row[3 * j + 1] * affine.scale[1] + affine.shift[1];
    blue[j] = row[3 * j + 2] * affine.scale[2] + affine.shift[2];
  }
}
void to_planes_plain(const float* row, int width, const Affine& affine, float* out,
                     uint64_t plane) {
  to_planes(row, width, affine, out, plane);
}
HORON_AVX2 void to_planes_fast(const float* row, int width, const Affine& affine, float* out,
                               uint64_t plane) {
  to_planes(row, width, affine, out, plane);
}

// The left (or upper) of the two source pixels around `out`, and the weight of the other.
int place_on(const Axis& axis, int out, float& weight) {
  const float at = axis.origin + (static_cast<float>(out) + 0.5F) * axis.step - 0.5F;
  const float low = std::floor(at);
  const int place = static_cast<int>(low);
  weight = at - low;
  if (place < axis.low || place >= axis.high) weight = 0.0F;
  return std::clamp(place, axis.low, axis.high);
}

}  // namespace

void Resampler::prepare(const Recipe& recipe, const Choices& choices, const Pixels& source) {
  source_ = source;
  width_ = recipe.width;
  y_ = choices.y;
  place_.resize(static_cast<size_t>(width_));
  weight_.resize(static_cast<size_t>(width_));
  int last = 0;
  first_ = choices.x.high;
  for (int j = 0; j < width_; ++j) {
    const int to = choices.flip ? width_ - 1 - j : j;
    const int place = place_on(choices.x, j, weight_[static_cast<size_t>(to)]);
    place_[static_cast<size_t>(to)] = place;
    first_ = std::min(first_, place);
    last = std::max(last, place);
  }
  last = std::min(last + 1, choices.x.high);
  columns_ = last - first_ + 1;
  for (int& place : place_) place = 3 * (place - first_);
  line_.assign(3 * static_cast<size_t>(columns_) + 8, 0.0F);
  out_.resize(3 * static_cast<size_t>(width_) + 4);
}

const float* Resampler::row(int row) {
  float weight = 0;
  const int upper = place_on(y_, row, weight);
  const int lower = weight > 0.0F ? upper + 1 : upper;
  const auto at = [&](int y) {
    return source_.data +
           (static_cast<size_t>(y - source_.region.y) * static_cast<size_t>(source_.region.width) +
            static_cast<size_t>(first_ - source_.region.x)) *
               3;
  };
  static const bool kFast = has_avx2();
  (kFast ? blend_fast : blend_plain)(at(upper), at(lower), weight, line_.data(), 3 * columns_);
  // Three channels at a time; the fourth lane is overwritten by the next pixel.
  const float* line = line_.data();
  float* out = out_.data();
  for (int j = 0; j < width_; ++j, out += 3) {
    const float* left = line + place_[static_cast<size_t>(j)];
    const Four low = *reinterpret_cast<const Four*>(left);
    const Four high = *reinterpret_cast<const Four*>(left + 3);
    *reinterpret_cast<Four*>(out) = low + (high - low) * weight_[static_cast<size_t>(j)];
  }
  return out_.data();
}

void pad_crop_to_planes(const PadCrop& job, float* out) {
  static const bool kFast = has_avx2();
  (kFast ? pad_crop_fast : pad_crop_plain)(job, out);
}

void write_planes_f32(const float* row, int width, const Affine& affine, float* out,
                      uint64_t plane) {
  static const bool kFast = has_avx2();
  (kFast ? to_planes_fast : to_planes_plain)(row, width, affine, out, plane);
}

}  // namespace horon
