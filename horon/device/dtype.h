#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace horon {

// Element types of buffers. The order is part of the wire format.
enum class DType : uint8_t { kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kBool };
constexpr size_t kDTypeCount = 10;

size_t size_of(DType dtype);               // bytes of one element
std::string_view name_of(DType dtype);     // "f32"
DType parse_dtype(std::string_view name);  // throws UsageError listing the names
std::span<const DType> all_dtypes();

constexpr bool is_float(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

}  // namespace horon
