#include "horon/device/buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {

OwnedBuffer OwnedBuffer::host(uint64_t count, DType dtype) {
  constexpr uint64_t kAlignment = 64;
  const uint64_t width = size_of(dtype);
  if (count > (std::numeric_limits<uint64_t>::max() / 2) / width) {
    throw UsageError(fmt::format("a buffer of {} elements of {} bytes is too large", count, width));
  }
  const uint64_t bytes =
      std::max<uint64_t>((count * width + kAlignment - 1) / kAlignment, 1) * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, bytes);
  if (memory == nullptr) throw IoError("no memory for a buffer of " + format_bytes(bytes));
  std::memset(memory, 0, bytes);
  return {BufferView{memory, count, dtype, {}}, std::shared_ptr<void>(memory, std::free)};
}

}  // namespace horon
