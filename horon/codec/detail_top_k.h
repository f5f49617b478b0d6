#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "horon/base/error.h"
#include "horon/codec/codec.h"

// Sparse codecs for tests: the largest numbers of each tensor, each as its index and value. An
// encoding has exactly as many as the segments and their steps say.
namespace horon {

class TopK : public Codec {
 public:
  bool is_dense() const override { return false; }
  size_t max_bytes(size_t, Segments segments) const override {
    size_t bytes = 0;
    for (const Segment& segment : segments) bytes += kept_of(segment) * sizeof(Entry);
    return bytes;
  }
  void decode(std::span<const std::byte> wire, Segments segments,
              std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0F);
    decode_add(wire, segments, out);
  }
  void decode_add(std::span<const std::byte> wire, Segments segments,
                  std::span<float> out) const override {
    if (wire.size() != max_bytes(out.size(), segments))
      throw Error(name() + ": bytes of another array", ExitCode::kPeer);
    for (const Segment& segment : segments) {
      for (size_t i = 0; i < kept_of(segment); ++i, wire = wire.subspan(sizeof(Entry))) {
        Entry entry;
        std::memcpy(&entry, wire.data(), sizeof(Entry));
        if (entry.index >= segment.count) throw Error(name() + ": no such index", ExitCode::kPeer);
        out[segment.offset + entry.index] += entry.value;
      }
    }
  }

 protected:
  struct Entry {
    uint32_t index;  // in the tensor
    float value;
  };
  virtual size_t kept_of(const Segment& segment) const = 0;

  // Indices of the largest, the lower ones first among equals.
  std::vector<uint32_t> largest(const float* values, const Segment& segment) const {
    std::vector<uint32_t> order(segment.count);
    std::iota(order.begin(), order.end(), 0U);
    const auto kept = static_cast<ptrdiff_t>(kept_of(segment));
    const auto size = [&](uint32_t index) {
      return std::isnan(values[index]) ? INFINITY : std::abs(values[index]);
    };
    std::partial_sort(
        order.begin(), order.begin() + kept, order.end(),
        [&](uint32_t a, uint32_t b) { return size(a) != size(b) ? size(a) > size(b) : a < b; });
    order.resize(kept_of(segment));
    return order;
  }
  static void put(std::span<std::byte>& out, uint32_t index, float value) {
    const Entry entry{index, value};
    std::memcpy(out.data(), &entry, sizeof(Entry));
    out = out.subspan(sizeof(Entry));
  }
};

// A quarter of each tensor; half of it in the first two steps.
class TopQuarter final : public TopK {
 public:
  std::string name() const override { return "top_quarter"; }
  size_t encode(std::span<const float> in, Segments segments, std::span<std::byte> out) override {
    for (const Segment& segment : segments) {
      const float* values = in.data() + segment.offset;
      for (const uint32_t index : largest(values, segment)) put(out, index, values[index]);
    }
    return max_bytes(in.size(), segments);
  }

 private:
  size_t kept_of(const Segment& segment) const override {
    const size_t part = segment.step && *segment.step < 2 ? 2 : 4;
    return (segment.count + part - 1) / part;
  }
};

// Deep gradient compression in small: momentum is added up where the gradients are, what was sent
// is masked, and the kept part shrinks with the step.
class SmallDgc final : public TopK {
 public:
  std::string name() const override { return "small_dgc"; }
  std::vector<std::string> state() const override { return {"velocity", "residual"}; }
  size_t encode(std::span<const float> in, Segments segments, std::span<std::byte> out) override {
    for (const Segment& segment : segments) {
      const std::span<float> u = segment.array(0);
      const std::span<float> v = segment.array(1);
      for (uint64_t i = 0; i < segment.count; ++i) {
        const float gradient = in[segment.offset + i];
        if (!std::isfinite(gradient)) continue;
        u[i] = 0.5F * u[i] + gradient;
        v[i] += u[i];
      }
      for (const uint32_t index : largest(v.data(), segment)) {
        put(out, index, v[index]);
        u[index] = v[index] = 0.0F;
      }
    }
    return max_bytes(in.size(), segments);
  }

 private:
  size_t kept_of(const Segment& segment) const override {
    require(segment.step.has_value(), "codec small_dgc goes by the step: NamedOptions::step");
    const uint64_t part = uint64_t{2} << std::min<uint64_t>(*segment.step, 3);
    return (segment.count + part - 1) / part;
  }
};

inline void add_test_codecs(CodecRegistry& codecs) {
  codecs.add("top_quarter", [] { return std::make_unique<TopQuarter>(); });
  codecs.add("small_dgc", [] { return std::make_unique<SmallDgc>(); });
}

}  // namespace horon
