#include "horon/runtime/scale.h"

#include <fmt/format.h>

#include <cstring>
#include <thread>

#include "horon/base/error.h"
#include "horon/device/half.h"

namespace horon {
namespace {

constexpr uint64_t kWorthAThread = 4U << 20;

template <typename T>
void multiply(const BufferView& data, T factor) {
  auto* at = static_cast<T*>(data.data);
  for (uint64_t i = 0; i < data.count; ++i) at[i] *= factor;
}

template <float (*widen)(uint16_t), uint16_t (*narrow)(float)>
void multiply_16(const BufferView& data, float factor) {
  auto* at = static_cast<uint16_t*>(data.data);
  for (uint64_t i = 0; i < data.count; ++i) at[i] = narrow(widen(at[i]) * factor);
}

}  // namespace

void scale(const BufferView& data, double factor) {
  if (factor == 1.0) return;
  switch (data.dtype) {
    case DType::kF32:
      return multiply<float>(data, static_cast<float>(factor));
    case DType::kF64:
      return multiply<double>(data, factor);
    case DType::kF16:
      return multiply_16<f16_to_float, float_to_f16>(data, static_cast<float>(factor));
    case DType::kBF16:
      return multiply_16<bf16_to_float, float_to_bf16>(data, static_cast<float>(factor));
    default:
      throw UsageError(fmt::format("a factor of {} on {}: only floating types can be scaled",
                                   factor, name_of(data.dtype)));
  }
}

void copy_all(const std::vector<CopyJob>& jobs, int threads) {
  uint64_t total = 0;
  for (const CopyJob& job : jobs) total += job.bytes;
  const auto wanted =
      std::min<uint64_t>(static_cast<uint64_t>(std::max(threads, 1)), 1 + total / kWorthAThread);
  const uint64_t share = total / wanted + 1;
  // Thread t copies the bytes [t * share, (t + 1) * share) of all jobs laid end to end.
  const auto part = [&](uint64_t first) {
    uint64_t start = 0;
    for (const CopyJob& job : jobs) {
      const uint64_t low = std::max(first, start);
      const uint64_t high = std::min(first + share, start + job.bytes);
      if (low < high)
        std::memcpy(static_cast<char*>(job.to) + (low - start),
                    static_cast<const char*>(job.from) + (low - start), high - low);
      start += job.bytes;
    }
  };
  std::vector<std::jthread> helpers;
  for (uint64_t t = 1; t < wanted; ++t)
    helpers.emplace_back([&part, t, share] { part(t * share); });
  part(0);
}

}  // namespace horon
