#include "horon/data/random.h"

#include <cmath>
#include <numbers>

#include "horon/base/error.h"

namespace horon {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

Draws::Draws(uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t operation)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      counter_{static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32),
               static_cast<uint32_t>(epoch), operation << 20} {}

uint32_t Draws::word() {
  if (left_ == 0) {
    block_ = philox(counter_, key_);
    ++counter_[3];
    left_ = 4;
  }
  return block_[static_cast<size_t>(4 - left_--)];
}

uint32_t Draws::below(uint32_t bound) {
  require(bound > 0, "a random number below 0");
  // Multiply and take the high half; the few low halves that would favour some results are redrawn.
  const uint32_t unfair = (0U - bound) % bound;
  while (true) {
    const uint64_t product = static_cast<uint64_t>(word()) * bound;
    if (static_cast<uint32_t>(product) >= unfair) return static_cast<uint32_t>(product >> 32);
  }
}

float Draws::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(unit())));
  return static_cast<float>(radius *
                            std::cos(2.0 * std::numbers::pi * static_cast<double>(unit())));
}

}  // namespace horon
