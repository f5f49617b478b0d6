#include "horon/comm/engine/channel.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/error.h"

namespace horon {

void refuse(const Round& round, OpKind kind) {
  throw Error(fmt::format("{}={} is not among the algorithms of this backend", name_of(kind),
                          name_of(round.algorithm)));
}

std::vector<uint64_t> offsets_of(std::span<const uint64_t> counts) {
  std::vector<uint64_t> offsets(counts.size() + 1, 0);
  for (size_t i = 0; i < counts.size(); ++i) offsets[i + 1] = offsets[i] + counts[i];
  return offsets;
}

std::vector<uint64_t> cut_evenly(uint64_t count, size_t parts, uint64_t grain) {
  const uint64_t grains = (count + grain - 1) / grain;
  std::vector<uint64_t> offsets(parts + 1, 0);
  for (size_t i = 1; i <= parts; ++i) {
    const uint64_t share = grains / parts * i + std::min<uint64_t>(grains % parts, i);
    offsets[i] = std::min(count, share * grain);
  }
  return offsets;
}

}  // namespace horon
