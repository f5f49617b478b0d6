#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/device/buffer.h"
#include "horon/device/copy.h"
#include "horon/device/half.h"
#include "horon/device/stream.h"

namespace horon {
namespace {

TEST(DTypes, NamesAndSizesGoBothWays) {
  for (DType dtype : all_dtypes()) EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  EXPECT_EQ(size_of(DType::kBF16), 2U);
  EXPECT_THROW(parse_dtype("float99"), UsageError);
}

// Every half is exact in f32, so converting back must give the same bits (NaN stays NaN).
TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value))));
    } else {
      ASSERT_EQ(float_to_f16(value), half) << bits;
    }
    const float wide = bf16_to_float(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(wide))));
    } else {
      ASSERT_EQ(float_to_bf16(wide), half) << bits;
    }
  }
}

#ifdef __FLT16_MAX__
// The compiler's own conversion is the independent reference.
TEST(Half, RoundsLikeTheCompiler) {
  uint32_t bits = 1;
  for (int i = 0; i < 2'000'000; ++i) {
    bits = bits * 1664525U + 1013904223U;
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    const auto reference = static_cast<_Float16>(value);
    uint16_t expected = 0;
    std::memcpy(&expected, &reference, sizeof(expected));
    ASSERT_EQ(float_to_f16(value), expected) << value;
  }
}
#endif

TEST(Half, BF16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0F + 0x1p-8F), 0x3f80);                     // tie: to even, down
  EXPECT_EQ(float_to_bf16(1.0F + 3 * 0x1p-8F), 0x3f82);                 // tie: to even, up
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);  // overflows to infinity
}

TEST(Buffers, SlicesAndZeroedMemory) {
  const OwnedBuffer buffer = OwnedBuffer::host(100, DType::kI16);
  EXPECT_EQ(buffer.view().bytes(), 200U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.view().data) % 64, 0U);
  for (int16_t value : buffer.as<int16_t>()) EXPECT_EQ(value, 0);
  EXPECT_EQ(buffer.view().slice(10, 5).data, buffer.as<int16_t>().data() + 10);
  EXPECT_THROW(OwnedBuffer::host(std::numeric_limits<uint64_t>::max(), DType::kF64), UsageError);
}

TEST(Copy, PacksAndUnpacks) {
  std::vector<float> a = {1, 2, 3};
  std::vector<float> none;
  std::vector<float> b = {4, 5};
  std::vector<float> bucket(5);
  const std::array<BufferView, 3> parts = {view_of(a), view_of(none), view_of(b)};
  pack(parts, view_of(bucket));
  EXPECT_EQ(bucket, (std::vector<float>{1, 2, 3, 4, 5}));
  scale(view_of(bucket), 2);
  unpack(view_of(bucket), parts);
  EXPECT_EQ(b, (std::vector<float>{8, 10}));
  std::vector<float> small(4);
  EXPECT_THROW(pack(parts, view_of(small)), UsageError);
}

TEST(Copy, CastsBetweenFloats) {
  std::vector<float> from = {1.5F, -2.0F, 65504.0F, 1e-8F};
  std::vector<uint16_t> half(4);
  std::vector<float> back(4);
  const BufferView narrow{half.data(), half.size(), DType::kF16, {}};
  cast(view_of(from), narrow);
  cast(narrow, view_of(back));
  EXPECT_EQ(back, (std::vector<float>{1.5F, -2.0F, 65504.0F, 0.0F}));
  std::vector<double> wrong(4);
  EXPECT_THROW(cast(view_of(from), view_of(wrong)), UsageError);
}

TEST(Streams, TheCpuRuntimeCopies) {
  const auto runtime = cpu_runtime();
  const auto stream = runtime->make_stream(0);
  const OwnedBuffer a = runtime->allocate(8, DType::kI32, 0);
  const OwnedBuffer b = runtime->allocate_pinned(8, DType::kI32);
  std::iota(a.as<int32_t>().begin(), a.as<int32_t>().end(), 0);
  stream->copy(b.view().data, a.view().data, a.view().bytes());
  stream->synchronize();
  EXPECT_EQ(b.as<int32_t>()[7], 7);
  EXPECT_THROW(open_cuda_runtime({"/nowhere"}), UsageError);
}

}  // namespace
}  // namespace horon
