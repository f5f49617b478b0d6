#include "horon/comm/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "horon/base/error.h"
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
        for (size_t n : {1U, 2U, 3U, 8U, 9U, 17U}) {
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
    for (size_t n : {2U, 5U, 8U, 11U}) {
      const uint64_t count = 2053;
      const Case inputs = make_case(dtype, n, count, 99);
      std::vector<OwnedBuffer> results;
      for (std::string_view kernels : kernel_names()) {
        results.push_back(OwnedBuffer::host(count, dtype));
        const std::vector<void*> target = {results.back().view().data};
        reduce_with(kernels, {.dtype = dtype,
                              .op = ReduceOp::kSum,
                              .divisor = 1,
                              .in = inputs.in,
                              .out = target,
                              .count = count});
        EXPECT_EQ(std::memcmp(results.back().view().data, results.front().view().data,
                              results.front().view().bytes()),
                  0)
            << kernels << " " << name_of(dtype);
      }
    }
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
