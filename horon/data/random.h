#pragma once

#include <array>
#include <cstdint>

namespace horon {

// Philox4x32-10: four random words as a pure function of a counter and a key.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The random numbers of one operation on one sample in one epoch. No other state: the same on any
// number of ranks and threads, in any order, after any restart.
class Draws {
 public:
  // `operation` < 4096.
  Draws(uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t operation);

  // The next random numbers: 32 bits, 64 bits, a float in [0, 1), a float in [low, high).
  uint32_t word();
  uint64_t wide() { return static_cast<uint64_t>(word()) << 32 | word(); }
  float unit() { return static_cast<float>(word() >> 8) * 0x1p-24F; }  // [0, 1)
  float between(float low, float high) { return low + (high - low) * unit(); }
  uint32_t below(uint32_t bound);  // [0, bound), uniform
  bool coin() { return (word() & 1) != 0; }
  float normal();  // mean 0, deviation 1

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_ = {};
  int left_ = 0;
};

// A good 64-bit hash of a number.
constexpr uint64_t mix_bits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace horon
