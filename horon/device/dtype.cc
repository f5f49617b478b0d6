#include "horon/device/dtype.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "horon/base/error.h"

namespace horon {
namespace {

constexpr std::array<std::string_view, kDTypeCount> kNames = {"u8",  "i8",   "i16", "i32", "i64",
                                                              "f16", "bf16", "f32", "f64", "bool"};
constexpr std::array<size_t, kDTypeCount> kSizes = {1, 1, 2, 4, 8, 2, 2, 4, 8, 1};
constexpr std::array<DType, kDTypeCount> kAll = {
    DType::kU8,  DType::kI8,   DType::kI16, DType::kI32, DType::kI64,
    DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kBool};

}  // namespace

size_t size_of(DType dtype) { return kSizes.at(static_cast<size_t>(dtype)); }
std::string_view name_of(DType dtype) { return kNames.at(static_cast<size_t>(dtype)); }
std::span<const DType> all_dtypes() { return kAll; }

DType parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  throw UsageError(fmt::format("unknown type '{}'; one of {}", name, fmt::join(kNames, ", ")));
}

}  // namespace horon
