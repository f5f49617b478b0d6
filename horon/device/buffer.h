#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>

#include "horon/device/dtype.h"

namespace horon {

enum class DeviceKind : uint8_t { kCpu, kCuda };

// A device: the CPU, or one GPU by its number on this host.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
  bool is_cpu() const { return kind == DeviceKind::kCpu; }
};

// A non-owning view: pointer, number of elements, type, device. A value type with 64-bit counts.
//   std::vector<float> values(1000);
//   comm.all_reduce(view_of(values));
struct BufferView {
  void* data = nullptr;
  uint64_t count = 0;
  DType dtype = DType::kF32;
  Device device = {};

  uint64_t bytes() const { return count * size_of(dtype); }
  // Elements [first, first + n).
  BufferView slice(uint64_t first, uint64_t n) const {
    return {static_cast<char*>(data) + first * size_of(dtype), n, dtype, device};
  }
};

namespace detail {
template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::kU8;
  if constexpr (std::is_same_v<T, int8_t>) return DType::kI8;
  if constexpr (std::is_same_v<T, int16_t>) return DType::kI16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kI32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kI64;
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  if constexpr (std::is_same_v<T, double>) return DType::kF64;
}
}  // namespace detail

// view_of(vector), view_of(span), view_of(array): the type is that of the elements.
template <typename Container>
BufferView view_of(Container& container) {
  using T = std::remove_cvref_t<decltype(*container.data())>;
  return {const_cast<T*>(container.data()), container.size(), detail::dtype_of<T>(), {}};
}

// Shared ownership of memory: freed when the last copy is destroyed.
//   OwnedBuffer buffer = comm.allocate(1000, DType::kF32);  // or OwnedBuffer::host(...)
//   for (float& x : buffer.as<float>()) x = 1;
class OwnedBuffer {
 public:
  OwnedBuffer() = default;
  OwnedBuffer(BufferView view, std::shared_ptr<void> owner)
      : view_(view), owner_(std::move(owner)) {}
  // Zeroed host memory, 64-byte aligned. Throws IoError if there is not enough.
  static OwnedBuffer host(uint64_t count, DType dtype);

  const BufferView& view() const { return view_; }
  template <typename T>
  std::span<T> as() const {
    return {static_cast<T*>(view_.data), static_cast<size_t>(view_.count)};
  }

 private:
  BufferView view_;
  std::shared_ptr<void> owner_;
};

}  // namespace horon
