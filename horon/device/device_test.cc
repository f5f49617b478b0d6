#include <gtest/gtest.h>

#include <array>
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

TEST(DTypes, NamesParseBackAndSizesMatch) {
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

TEST(Buffers, SlicesAreOffsetAndHostMemoryIsZeroed) {
  const OwnedBuffer buffer = OwnedBuffer::host(100, DType::kI16);
  EXPECT_EQ(buffer.view().bytes(), 200U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.view().data) % 64, 0U);
  for (int16_t value : buffer.as<int16_t>()) EXPECT_EQ(value, 0);
  EXPECT_EQ(buffer.view().slice(10, 5).data, buffer.as<int16_t>().data() + 10);
  EXPECT_THROW(OwnedBuffer::host(std::numeric_limits<uint64_t>::max(), DType::kF64), UsageError);
}

TEST(Copy, ManyCopiesByAnyNumberOfThreads) {
  std::vector<uint8_t> from((9U << 20) + 5);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 251);
  for (const int threads : {1, 2, 5}) {
    std::vector<uint8_t> to(from.size());
    std::vector<CopyJob> jobs;
    const std::array<size_t, 6> cuts = {0, 1, 1, 1000, 8U << 20, from.size()};
    for (size_t i = 1; i < cuts.size(); ++i)
      jobs.push_back({to.data() + cuts[i - 1], from.data() + cuts[i - 1], cuts[i] - cuts[i - 1]});
    copy_all(jobs, threads);
    EXPECT_EQ(to, from) << threads;
  }
}

TEST(Copy, ScalesNumbers) {
  std::vector<float> values = {1.5F, -2.0F};
  scale(view_of(values), 2);
  EXPECT_EQ(values, (std::vector<float>{3.0F, -4.0F}));
  std::vector<int32_t> whole = {7, -7, 2'000'000'000};
  scale(view_of(whole), 1.5);  // cut, and at most what there is
  EXPECT_EQ(whole, (std::vector<int32_t>{10, -10, std::numeric_limits<int32_t>::max()}));
  std::vector<uint8_t> small = {200, 3};
  scale(view_of(small), -1);
  EXPECT_EQ(small, (std::vector<uint8_t>{0, 0}));
  std::array<bool, 1> word = {true};
  EXPECT_THROW(scale(view_of(word), 0.5), UsageError);
  BufferView elsewhere = view_of(values);
  elsewhere.device = {DeviceKind::kCuda, 0};
  EXPECT_THROW(scale(elsewhere, 2), UsageError);
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
