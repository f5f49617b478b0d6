#pragma once

#include <cstddef>
#include <cstdint>

namespace horon {

// CRC-32C (Castagnoli) of `bytes` bytes at `data`, continued from `crc` (0 to start). Uses the
// CPU's instruction in three interleaved streams if there is one. Thread-safe; does not throw.
uint32_t crc32c(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace horon
