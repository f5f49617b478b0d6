#pragma once

#include <cstddef>
#include <cstdint>

namespace horon {

// CRC-32C (Castagnoli), continued from `crc` (0: from the beginning). Uses the CPU's instruction in
// three interleaved streams where there is one.
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace horon
