#include "horon/comm/shared/local.h"

#include <sys/mman.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/comm/shared/backend.h"

namespace horon::shared {

std::vector<std::unique_ptr<Backend>> make_local_backends(int size, const LocalOptions& options) {
  require(size >= 1 && size <= kMaxRanks, "local: 1 to 192 ranks");
  const RegionLayout layout(size, 0);
  auto mapping = std::make_shared<Mapping>();
  mapping->bytes = layout.total;
  void* base = mmap(nullptr, layout.total, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw io_error("mmap for local ranks");
  mapping->base = static_cast<char*>(base);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 0; rank < size; ++rank) {
    RegionOptions mine{.rank = rank, .size = size, .heap_bytes = 0};
    mine.inline_bytes = std::min(options.inline_bytes, kInlineBytes);
    mine.spin = spin_time(options.spin, size);
    backends.push_back(make_shared_backend(size == 1 ? "self" : "local",
                                           std::make_shared<SharedRegion>(mine, mapping), nullptr));
  }
  return backends;
}

}  // namespace horon::shared
