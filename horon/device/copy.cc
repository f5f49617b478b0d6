#include "horon/device/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/device/half.h"
#include "horon/device/mirror.h"

namespace horon {
namespace {

constexpr uint64_t kWorthAThread = 4U << 20;  // bytes

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

// In f64, cut towards zero, at the ends of the type at most.
template <typename T>
void multiply_whole(const BufferView& data, double factor) {
  constexpr auto kLow = static_cast<double>(std::numeric_limits<T>::lowest());
  constexpr auto kHigh = static_cast<double>(std::numeric_limits<T>::max());
  auto* at = static_cast<T*>(data.data);
  for (uint64_t i = 0; i < data.count; ++i) {
    const double value = static_cast<double>(at[i]) * factor;
    at[i] = value >= kHigh ? std::numeric_limits<T>::max() : static_cast<T>(std::max(value, kLow));
  }
}

void scale_host(const BufferView& data, double factor) {
  switch (data.dtype) {
    case DType::kU8:
      return multiply_whole<uint8_t>(data, factor);
    case DType::kI8:
      return multiply_whole<int8_t>(data, factor);
    case DType::kI16:
      return multiply_whole<int16_t>(data, factor);
    case DType::kI32:
      return multiply_whole<int32_t>(data, factor);
    case DType::kI64:
      return multiply_whole<int64_t>(data, factor);
    case DType::kF32:
      return multiply<float>(data, static_cast<float>(factor));
    case DType::kF64:
      return multiply<double>(data, factor);
    case DType::kF16:
      return multiply_16<f16_to_float, float_to_f16>(data, static_cast<float>(factor));
    case DType::kBF16:
      return multiply_16<bf16_to_float, float_to_bf16>(data, static_cast<float>(factor));
    default:
      throw UsageError(fmt::format("a factor of {} on {}: only numbers can be scaled", factor,
                                   name_of(data.dtype)));
  }
}

}  // namespace

void scale(const BufferView& data, double factor, DeviceRuntime* runtime, bool is_ready) {
  if (factor == 1.0) return;
  const HostMirror host(data, true, runtime, is_ready);
  scale_host(host.view(), factor);
  host.write_back(runtime);
}

void copy_all(const std::vector<CopyJob>& jobs, int threads, const Device& device,
              DeviceRuntime* runtime, bool is_ready) {
  if (!device.is_cpu()) {
    require(runtime != nullptr, "copies of device memory need the device's part");
    const auto stream = runtime->make_stream(device.index);
    if (!is_ready) stream->follow_caller();
    for (const CopyJob& job : jobs) stream->copy(job.to, job.from, job.bytes);
    return stream->synchronize();
  }
  uint64_t total = 0;
  for (const CopyJob& job : jobs) total += job.bytes;
  // Each thread copies a range of all jobs laid end to end.
  parallel_for(total, kWorthAThread, threads, [&](uint64_t first, uint64_t last) {
    uint64_t start = 0;
    for (const CopyJob& job : jobs) {
      const uint64_t low = std::max(first, start);
      const uint64_t high = std::min(last, start + job.bytes);
      if (low < high)
        std::memcpy(static_cast<char*>(job.to) + (low - start),
                    static_cast<const char*>(job.from) + (low - start), high - low);
      start += job.bytes;
    }
  });
}

}  // namespace horon
