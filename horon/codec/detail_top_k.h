#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "horon/base/error.h"
#include "horon/codec/codec.h"

// A sparse codec for tests: the largest quarter of the numbers, each as its place and value.
namespace horon {

class TopQuarter final : public Codec {
 public:
  std::string name() const override { return "top_quarter"; }
  bool is_dense() const override { return false; }
  size_t max_bytes(size_t count) const override { return (count + 3) / 4 * sizeof(Entry); }

  size_t encode(const std::string&, std::span<const float> in, std::span<std::byte> out) override {
    std::vector<uint32_t> order(in.size());
    std::iota(order.begin(), order.end(), 0U);
    const size_t kept = (in.size() + 3) / 4;
    std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept), order.end(),
                      [&](uint32_t a, uint32_t b) { return std::abs(in[a]) > std::abs(in[b]); });
    for (size_t i = 0; i < kept; ++i) {
      const Entry entry{order[i], in[order[i]]};
      std::memcpy(out.data() + i * sizeof(Entry), &entry, sizeof(Entry));
    }
    return kept * sizeof(Entry);
  }

  void decode(std::span<const std::byte> wire, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0F);
    decode_add(wire, out);
  }

  void decode_add(std::span<const std::byte> wire, std::span<float> out) const override {
    if (wire.size() != max_bytes(out.size()))
      throw Error("top_quarter: bytes of another array", ExitCode::kPeer);
    for (size_t i = 0; i < wire.size(); i += sizeof(Entry)) {
      Entry entry;
      std::memcpy(&entry, wire.data() + i, sizeof(Entry));
      if (entry.place >= out.size()) throw Error("top_quarter: no such place", ExitCode::kPeer);
      out[entry.place] += entry.value;
    }
  }

 private:
  struct Entry {
    uint32_t place;
    float value;
  };
};

}  // namespace horon
