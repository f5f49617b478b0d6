#include "horon/train/flaw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

namespace horon::train {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;
constexpr size_t kMostText = 200;

uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffU; }

}  // namespace

bool take_checked(float* to, const float* from, uint64_t count, bool adds) {
  // Compared as signed integers: the order is that of the magnitudes, and SIMD can compare them.
  int32_t most = 0;
  if (adds) {
#pragma GCC ivdep
    for (uint64_t i = 0; i < count; ++i) {
      most = std::max(most, static_cast<int32_t>(magnitude(from[i])));
      to[i] += from[i];
    }
  } else {
#pragma GCC ivdep
    for (uint64_t i = 0; i < count; ++i) {
      most = std::max(most, static_cast<int32_t>(magnitude(from[i])));
      to[i] = from[i];
    }
  }
  return static_cast<uint32_t>(most) < kInfinity;
}

uint64_t count_flaws(const float* values, uint64_t count) {
  uint64_t flaws = 0;
  for (uint64_t i = 0; i < count; ++i) flaws += magnitude(values[i]) >= kInfinity ? 1 : 0;
  return flaws;
}

void Flaws::note(const std::string& text) {
  if (text_.empty()) text_ = text.substr(0, kMostText - 1);
}

void Flaws::note_gradient(const std::string& name, uint64_t values) {
  note(fmt::format("{} value(s) of the gradient of '{}'", values, name));
}

std::vector<std::string> Flaws::gather(Communicator& comm) const {
  std::array<uint8_t, kMostText> mine = {};
  std::copy(text_.begin(), text_.end(), mine.begin());
  const Gathered all = comm.all_gather(view_of(mine), {.name = "what is not finite"});
  const auto* at = reinterpret_cast<const char*>(all.data.as<uint8_t>().data());
  std::vector<std::string> lines;
  for (int rank = 0; rank < comm.size(); ++rank, at += kMostText) {
    if (at[0] != '\0') lines.push_back(fmt::format("rank {}: {}", rank, std::string(at)));
  }
  return lines;
}

}  // namespace horon::train
