#include "horon/device/copy.h"

#include <fmt/format.h>

#include <cstring>

#include "horon/base/error.h"
#include "horon/device/half.h"

namespace horon {
namespace {

float load_float(const void* data, DType dtype, uint64_t i) {
  switch (dtype) {
    case DType::kF16:
      return f16_to_float(static_cast<const uint16_t*>(data)[i]);
    case DType::kBF16:
      return bf16_to_float(static_cast<const uint16_t*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

void store_float(void* data, DType dtype, uint64_t i, float value) {
  switch (dtype) {
    case DType::kF16:
      static_cast<uint16_t*>(data)[i] = float_to_f16(value);
      return;
    case DType::kBF16:
      static_cast<uint16_t*>(data)[i] = float_to_bf16(value);
      return;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

void check_parts(std::span<const BufferView> parts, const BufferView& bucket) {
  uint64_t total = 0;
  for (const BufferView& part : parts) {
    require(part.dtype == bucket.dtype, "pack: a part and the bucket have different types");
    total += part.count;
  }
  require(total <= bucket.count,
          fmt::format("pack: {} elements do not fit into a bucket of {}", total, bucket.count));
}

}  // namespace

void pack(std::span<const BufferView> parts, BufferView bucket) {
  check_parts(parts, bucket);
  auto* at = static_cast<char*>(bucket.data);
  for (const BufferView& part : parts) {
    if (part.count != 0) std::memcpy(at, part.data, part.bytes());
    at += part.bytes();
  }
}

void unpack(BufferView bucket, std::span<const BufferView> parts) {
  check_parts(parts, bucket);
  const auto* at = static_cast<const char*>(bucket.data);
  for (const BufferView& part : parts) {
    if (part.count != 0) std::memcpy(part.data, at, part.bytes());
    at += part.bytes();
  }
}

void scale(BufferView data, double factor) {
  require(is_float(data.dtype), "scale: floats only");
  if (data.dtype == DType::kF64) {
    auto* values = static_cast<double*>(data.data);
    for (uint64_t i = 0; i < data.count; ++i) values[i] *= factor;
    return;
  }
  const auto narrow = static_cast<float>(factor);
  for (uint64_t i = 0; i < data.count; ++i) {
    store_float(data.data, data.dtype, i, load_float(data.data, data.dtype, i) * narrow);
  }
}

void cast(BufferView from, BufferView to) {
  const auto is_narrow = [](DType dtype) { return is_float(dtype) && dtype != DType::kF64; };
  require(is_narrow(from.dtype) && is_narrow(to.dtype), "cast: f32, f16 and bf16 only");
  require(from.count == to.count, "cast: different counts");
  for (uint64_t i = 0; i < from.count; ++i) {
    store_float(to.data, to.dtype, i, load_float(from.data, from.dtype, i));
  }
}

}  // namespace horon
