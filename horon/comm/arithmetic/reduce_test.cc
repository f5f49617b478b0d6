#include "horon/comm/arithmetic/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "horon/base/error.h"
#include "horon/device/half.h"
#include "tests/support/reference.h"

namespace horon {
namespace {

using testing_support::fill_random;
using testing_support::reference_reduce;

constexpr std::array<ReduceOp, 5> kOps = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin,
                                          ReduceOp::kMax, ReduceOp::kProduct};

struct Case {
  std::vector<OwnedBuffer> inputs;
  std::vector<const void*> in;
};

Case make_case(DType dtype, size_t n, uint64_t count, uint64_t seed) {
  Case made;
  for (size_t k = 0; k < n; ++k) {
    made.inputs.push_back(OwnedBuffer::host(count, dtype));
    fill_random(made.inputs.back().view(), seed + k);
    made.in.push_back(made.inputs.back().view().data);
  }
  return made;
}

// Every kernel, type, operation and number of inputs against long double.
TEST(Reduce, MatchesTheReference) {
  for (std::string_view kernels : kernel_names()) {
    for (DType dtype : all_dtypes()) {
      for (ReduceOp op : kOps) {
        if (op == ReduceOp::kAverage && dtype == DType::kBool) continue;
        for (size_t n : {1U, 2U, 3U, 8U, 16U, 17U}) {
          for (uint64_t count : {1U, 7U, 1023U, 1025U, 4099U}) {
            const Case inputs = make_case(dtype, n, count, 7 * n + count);
            const OwnedBuffer out = OwnedBuffer::host(count, dtype);
            const std::vector<void*> target = {out.view().data};
            reduce_with(kernels, {.dtype = dtype,
                                  .op = op,
                                  .divisor = static_cast<uint32_t>(n),
                                  .in = inputs.in,
                                  .out = target,
                                  .count = count});
            std::vector<BufferView> views;
            for (const OwnedBuffer& input : inputs.inputs) views.push_back(input.view());
            const std::string wrong = reference_reduce(views, op, out.view());
            ASSERT_EQ(wrong, "") << kernels << " " << name_of(dtype) << " " << name_of(op)
                                 << " n=" << n;
          }
        }
      }
    }
  }
}

TEST(Reduce, AllKernelsGiveTheSameBits) {
  for (DType dtype : all_dtypes()) {
    for (ReduceOp op : kOps) {
      if (op == ReduceOp::kAverage && dtype == DType::kBool) continue;
      for (size_t n : {2U, 5U, 8U, 11U, 17U}) {
        const uint64_t count = 2053;
        const Case inputs = make_case(dtype, n, count, 99);
        std::vector<OwnedBuffer> results;
        for (std::string_view kernels : kernel_names()) {
          results.push_back(OwnedBuffer::host(count, dtype));
          const std::vector<void*> target = {results.back().view().data};
          reduce_with(kernels, {.dtype = dtype,
                                .op = op,
                                .divisor = 3,
                                .in = inputs.in,
                                .out = target,
                                .count = count});
          EXPECT_EQ(std::memcmp(results.back().view().data, results.front().view().data,
                                results.front().view().bytes()),
                    0)
              << kernels << " " << name_of(dtype) << " " << name_of(op) << " n=" << n;
        }
      }
    }
  }
}

// Scalar code, from device/half.h and the definition of the operations alone.
template <typename T>
struct Element {
  using Value = T;
  static T load(T bits) { return bits; }
  static T store(T value) { return value; }
};
struct F16Element {
  using Value = float;
  static float load(uint16_t bits) { return f16_to_float(bits); }
  static uint16_t store(float value) { return float_to_f16(value); }
};
struct BF16Element {
  using Value = float;
  static float load(uint16_t bits) { return bf16_to_float(bits); }
  static uint16_t store(float value) { return float_to_bf16(value); }
};

template <typename V>
V combine(ReduceOp op, V a, V b) {
  if (op == ReduceOp::kMin) return std::isnan(a) || a < b ? a : b;
  if (op == ReduceOp::kMax) return std::isnan(a) || a > b ? a : b;
  return a + b;
}

// Every kernel against scalar code, in place, over whatever bits there are: NaN, infinities, both
// zeros and subnormals. Which NaN it is stays open.
template <typename E, typename T>
void compare_with_scalar(DType dtype, const std::vector<T>& patterns, size_t n) {
  using V = typename E::Value;
  for (std::string_view kernels : kernel_names()) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<std::vector<T>> data(n, patterns);
      std::vector<void*> out;
      for (size_t k = 0; k < n; ++k) {
        std::shuffle(data[k].begin(), data[k].end(), std::mt19937_64(k + 1));
        out.push_back(data[k].data());
      }
      std::vector<T> expected(patterns.size());
      for (size_t i = 0; i < patterns.size(); ++i) {
        V value = E::load(data[0][i]);
        for (size_t k = 1; k < n; ++k) value = combine(op, value, E::load(data[k][i]));
        if (op == ReduceOp::kAverage) value /= static_cast<V>(n);
        expected[i] = E::store(value);
      }
      reduce_with(kernels, {.dtype = dtype,
                            .op = op,
                            .divisor = static_cast<uint32_t>(n),
                            .in = std::vector<const void*>(out.begin(), out.end()),
                            .out = out,
                            .count = patterns.size()});
      for (size_t i = 0; i < patterns.size(); ++i) {
        const bool is_nan = std::isnan(E::load(expected[i]));
        for (size_t k = 0; k < n; ++k) {
          const bool right = is_nan ? std::isnan(E::load(data[k][i]))
                                    : std::memcmp(&data[k][i], &expected[i], sizeof(T)) == 0;
          ASSERT_TRUE(right) << kernels << " " << name_of(dtype) << " " << name_of(op) << " n=" << n
                             << " i=" << i << ": " << E::load(data[k][i]) << ", not "
                             << E::load(expected[i]);
        }
      }
    }
  }
}

TEST(Reduce, HalvesHaveTheBitsOfScalarCode) {
  std::vector<uint16_t> patterns;
  for (uint32_t bits = 0; bits < 65536 + 13; ++bits)
    patterns.push_back(static_cast<uint16_t>(bits));
  for (size_t n : {2U, 3U, 8U, 17U}) {
    compare_with_scalar<F16Element>(DType::kF16, patterns, n);
    compare_with_scalar<BF16Element>(DType::kBF16, patterns, n);
  }
}

template <typename T>
std::vector<T> odd_numbers() {
  using Limits = std::numeric_limits<T>;
  const std::vector<T> corners = {0,
                                  -T{0},
                                  1,
                                  -1,
                                  Limits::infinity(),
                                  -Limits::infinity(),
                                  Limits::quiet_NaN(),
                                  -Limits::quiet_NaN(),
                                  Limits::denorm_min(),
                                  -Limits::denorm_min(),
                                  Limits::max(),
                                  Limits::lowest()};
  std::vector<T> numbers;
  std::mt19937_64 random(5);
  for (int i = 0; i < 5003; ++i) {
    const auto scale = static_cast<int>(random() % 60) - 30;
    const T number = std::ldexp(static_cast<T>(random() % 100000) - 50000, scale);
    numbers.push_back(random() % 3 == 0 ? corners[random() % corners.size()] : number);
  }
  return numbers;
}

TEST(Reduce, FloatsHaveTheBitsOfScalarCode) {
  for (size_t n : {2U, 3U, 8U, 17U}) {
    compare_with_scalar<Element<float>>(DType::kF32, odd_numbers<float>(), n);
    compare_with_scalar<Element<double>>(DType::kF64, odd_numbers<double>(), n);
  }
}

TEST(Reduce, InPlaceWritesEverybody) {
  std::vector<std::vector<float>> data = {{1, 2, 3}, {10, 20, 30}, {100, 200, 300}};
  std::vector<const void*> in;
  std::vector<void*> out;
  for (auto& one : data) {
    in.push_back(one.data());
    out.push_back(one.data());
  }
  reduce(
      {.dtype = DType::kF32, .op = ReduceOp::kSum, .divisor = 1, .in = in, .out = out, .count = 3});
  for (const auto& one : data) EXPECT_EQ(one, (std::vector<float>{111, 222, 333}));
}

TEST(Reduce, MinAndMaxPassNaNOn) {
  const float nan = std::nanf("");
  for (const auto& [a, b] : {std::pair{nan, 1.0F}, std::pair{1.0F, nan}}) {
    for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      float out = 0;
      const std::array<const void*, 2> in = {&a, &b};
      const std::array<void*, 1> target = {&out};
      reduce({.dtype = DType::kF32, .op = op, .divisor = 1, .in = in, .out = target, .count = 1});
      EXPECT_TRUE(std::isnan(out));
    }
  }
}

TEST(Reduce, ABoolAverageIsAnError) {
  uint8_t x = 1;
  const std::array<const void*, 1> in = {&x};
  const std::array<void*, 1> out = {&x};
  EXPECT_THROW(reduce({.dtype = DType::kBool,
                       .op = ReduceOp::kAverage,
                       .divisor = 1,
                       .in = in,
                       .out = out,
                       .count = 1}),
               UsageError);
}

}  // namespace
}  // namespace horon
