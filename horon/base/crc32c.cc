#include "horon/base/crc32c.h"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace horon {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

using Table = std::array<std::array<uint32_t, 256>, 8>;

const Table& byte_table() {
  static const Table kTable = [] {
    Table made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
      made[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; ++i) {
      for (size_t k = 1; k < 8; ++k)
        made[k][i] = (made[k - 1][i] >> 8) ^ made[0][made[k - 1][i] & 0xff];
    }
    return made;
  }();
  return kTable;
}

uint32_t update_portable(const unsigned char* data, size_t bytes, uint32_t crc) {
  const Table& table = byte_table();
  for (; bytes >= 8; bytes -= 8, data += 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= table[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; bytes > 0; --bytes) crc = (crc >> 8) ^ table[0][(crc ^ *data++) & 0xff];
  return crc;
}

#if defined(__x86_64__)
// The instruction takes three cycles but starts every cycle: three streams side by side, put
// together by tables that push a CRC over as many zero bytes as a stream is long.
constexpr size_t kStream = 1024;

using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

ShiftTable make_shift(size_t bytes) {
  ShiftTable table{};
  for (size_t k = 0; k < 4; ++k) {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i << (8 * k);
      for (size_t n = 0; n < bytes; ++n) crc = (crc >> 8) ^ byte_table()[0][crc & 0xff];
      table[k][i] = crc;
    }
  }
  return table;
}

uint32_t shift(const ShiftTable& table, uint32_t crc) {
  return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff] ^
         table[3][crc >> 24];
}

uint64_t load(const unsigned char* at) {
  uint64_t word = 0;
  std::memcpy(&word, at, 8);
  return word;
}

__attribute__((target("sse4.2"))) uint32_t update_fast(const unsigned char* data, size_t bytes,
                                                       uint32_t crc) {
  static const ShiftTable kOnce = make_shift(kStream);
  static const ShiftTable kTwice = make_shift(2 * kStream);
  for (; bytes >= 3 * kStream; bytes -= 3 * kStream, data += 3 * kStream) {
    uint64_t a = crc;
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kStream; i += 8) {
      a = _mm_crc32_u64(a, load(data + i));
      b = _mm_crc32_u64(b, load(data + kStream + i));
      c = _mm_crc32_u64(c, load(data + 2 * kStream + i));
    }
    crc = shift(kTwice, static_cast<uint32_t>(a)) ^ shift(kOnce, static_cast<uint32_t>(b)) ^
          static_cast<uint32_t>(c);
  }
  uint64_t wide = crc;
  for (; bytes >= 8; bytes -= 8, data += 8) wide = _mm_crc32_u64(wide, load(data));
  crc = static_cast<uint32_t>(wide);
  for (; bytes > 0; --bytes) crc = _mm_crc32_u8(crc, *data++);
  return crc;
}
#endif

}  // namespace

uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
  const auto* at = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  static const bool kFast = __builtin_cpu_supports("sse4.2") != 0;
  if (kFast) return ~update_fast(at, bytes, ~crc);
#endif
  return ~update_portable(at, bytes, ~crc);
}

}  // namespace horon
