#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "horon/comm/types.h"
#include "horon/device/half.h"

// What results are compared with: sums in long double (and wrapped 64-bit integers), element by
// element.
namespace horon::testing_support {

inline bool is_integer(DType dtype) { return !is_float(dtype) && dtype != DType::kBool; }

inline long double load(const BufferView& view, uint64_t i) {
  const void* at = static_cast<const char*>(view.data) + i * size_of(view.dtype);
  const auto as = [&]<typename T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    return value;
  };
  switch (view.dtype) {
    case DType::kU8:
      return as(uint8_t{});
    case DType::kI8:
      return as(int8_t{});
    case DType::kI16:
      return as(int16_t{});
    case DType::kI32:
      return as(int32_t{});
    case DType::kI64:
      return static_cast<long double>(as(int64_t{}));
    case DType::kF16:
      return f16_to_float(as(uint16_t{}));
    case DType::kBF16:
      return bf16_to_float(as(uint16_t{}));
    case DType::kF32:
      return as(float{});
    case DType::kF64:
      return as(double{});
    case DType::kBool:
      return as(uint8_t{}) != 0 ? 1 : 0;
  }
  return 0;
}

inline void store(const BufferView& view, uint64_t i, double value) {
  void* at = static_cast<char*>(view.data) + i * size_of(view.dtype);
  const auto as = [&](auto typed) { std::memcpy(at, &typed, sizeof(typed)); };
  switch (view.dtype) {
    case DType::kU8:
      return as(static_cast<uint8_t>(value));
    case DType::kI8:
      return as(static_cast<int8_t>(value));
    case DType::kI16:
      return as(static_cast<int16_t>(value));
    case DType::kI32:
      return as(static_cast<int32_t>(value));
    case DType::kI64:
      return as(static_cast<int64_t>(value));
    case DType::kF16:
      return as(float_to_f16(static_cast<float>(value)));
    case DType::kBF16:
      return as(float_to_bf16(static_cast<float>(value)));
    case DType::kF32:
      return as(static_cast<float>(value));
    case DType::kF64:
      return as(value);
    case DType::kBool:
      return as(static_cast<uint8_t>(value != 0 ? 1 : 0));
  }
}

// A cheap generator: the same values for the same seed everywhere.
inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Values that every type can hold: small integers of both signs, fractions for floats.
inline double value_at(DType dtype, uint64_t seed, uint64_t i) {
  const uint64_t bits = mix(seed * 0x100000001b3ULL + i);
  if (dtype == DType::kBool) return static_cast<double>(bits & 1);
  if (dtype == DType::kU8) return static_cast<double>(bits % 256);
  if (is_integer(dtype)) return static_cast<double>(bits % 251) - 125.0;
  return (static_cast<double>(bits % 4096) - 2048.0) / 256.0;
}

inline void fill_random(const BufferView& view, uint64_t seed) {
  for (uint64_t i = 0; i < view.count; ++i) store(view, i, value_at(view.dtype, seed, i));
}

inline int64_t wrap(DType dtype, uint64_t value) {
  switch (dtype) {
    case DType::kU8:
      return static_cast<uint8_t>(value);
    case DType::kI8:
      return static_cast<int8_t>(value);
    case DType::kI16:
      return static_cast<int16_t>(value);
    case DType::kI32:
      return static_cast<int32_t>(value);
    default:
      return static_cast<int64_t>(value);
  }
}

// One element of the reduction over `values`, in the arithmetic of the documentation.
inline long double expected_value(DType dtype, ReduceOp op,
                                  const std::vector<long double>& values) {
  const auto n = static_cast<long double>(values.size());
  if (is_integer(dtype) && op != ReduceOp::kMin && op != ReduceOp::kMax) {
    uint64_t total = op == ReduceOp::kProduct ? 1 : 0;
    for (long double value : values) {
      const auto whole = static_cast<uint64_t>(static_cast<int64_t>(value));
      total = op == ReduceOp::kProduct ? total * whole : total + whole;
    }
    if (op == ReduceOp::kAverage)
      return static_cast<long double>(static_cast<int64_t>(total) /
                                      static_cast<int64_t>(values.size()));
    return static_cast<long double>(wrap(dtype, total));
  }
  long double result = values[0];
  for (size_t k = 1; k < values.size(); ++k) {
    const long double value = values[k];
    if (op == ReduceOp::kMin) result = std::min(result, value);
    if (op == ReduceOp::kMax) result = std::max(result, value);
    if (op == ReduceOp::kProduct) result *= value;
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) result += value;
  }
  if (dtype == DType::kBool) return result != 0 ? 1 : 0;
  return op == ReduceOp::kAverage ? result / n : result;
}

// Largest error that rounding explains: n additions in the accumulator, one rounding to the type.
inline long double tolerance(DType dtype, ReduceOp op, const std::vector<long double>& values,
                             long double expected) {
  if (!is_float(dtype) || op == ReduceOp::kMin || op == ReduceOp::kMax) return 0;
  const long double step = dtype == DType::kF64 ? 0x1p-53L : 0x1p-24L;
  const long double last = dtype == DType::kF16 ? 0x1p-11L : dtype == DType::kBF16 ? 0x1p-8L : step;
  long double magnitude = 0;
  for (long double value : values) magnitude += std::fabs(value);
  if (op == ReduceOp::kProduct) magnitude = std::fabs(expected);
  if (op == ReduceOp::kAverage) magnitude /= static_cast<long double>(values.size());
  const long double tiny = dtype == DType::kF16 ? 0x1p-25L : 0;  // half of the smallest f16
  return (static_cast<long double>(values.size()) * step) * magnitude * 1.01L +
         last * std::fabs(expected) * 1.01L + tiny;
}

// What input_of(rank) holds at i, after rounding to the type.
inline long double input_value(DType dtype, uint64_t seed, int rank, uint64_t i) {
  double room = 0;
  const BufferView one{&room, 1, dtype, {}};
  store(one, 0, value_at(dtype, seed * 1000 + static_cast<uint64_t>(rank), i));
  return load(one, 0);
}

// Empty if `got` is the reduction of `values`.
inline std::string compare(DType dtype, ReduceOp op, const std::vector<long double>& values,
                           long double got) {
  const long double expected = expected_value(dtype, op, values);
  const bool overflow = dtype == DType::kF16 && std::fabs(expected) > 65500 && std::isinf(got);
  if (overflow || std::fabs(got - expected) <= tolerance(dtype, op, values, expected)) return "";
  return fmt::format("expected {}, got {}", static_cast<double>(expected),
                     static_cast<double>(got));
}

// Empty if `result`, elements [first, ...) of the whole, is the reduction over ranks 0..size-1 of
// their inputs. Of long results each rank looks at its share and at the edges: together they see
// everything.
inline std::string check_reduced(const BufferView& result, ReduceOp op, uint64_t seed, int rank,
                                 int size, uint64_t first = 0) {
  for (uint64_t i = 0; i < result.count; ++i) {
    const bool edge = i < 64 || i + 64 > result.count;
    if (!edge && i % static_cast<uint64_t>(size) != static_cast<uint64_t>(rank)) continue;
    std::vector<long double> values;
    for (int r = 0; r < size; ++r) values.push_back(input_value(result.dtype, seed, r, first + i));
    const std::string wrong = compare(result.dtype, op, values, load(result, i));
    if (!wrong.empty()) return fmt::format("element {} of {}: {}", i, result.count, wrong);
  }
  return "";
}

// Empty if `result` is the reduction of `inputs`, else where it is not.
inline std::string reference_reduce(const std::vector<BufferView>& inputs, ReduceOp op,
                                    const BufferView& result) {
  for (uint64_t i = 0; i < result.count; ++i) {
    std::vector<long double> values;
    for (const BufferView& input : inputs) values.push_back(load(input, i));
    const std::string wrong = compare(result.dtype, op, values, load(result, i));
    if (!wrong.empty()) return fmt::format("element {} of {}: {}", i, result.count, wrong);
  }
  return "";
}

}  // namespace horon::testing_support
