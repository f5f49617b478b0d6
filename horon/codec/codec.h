#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horon/device/buffer.h"

namespace horon {

// What one rank sends instead of its numbers.
struct Encoded {
  std::vector<std::byte> bytes;
};

// Makes f32 arrays smaller for the wire, and back. Two kinds:
// - dense: encodings are arrays of wire_dtype(), as long as the input, that can be summed element
// by
//   element on the way (fp16, bf16);
// - sparse: encodings have a size of their own on every rank; they are gathered, and each is added
//   to the result (top-k).
// An object serves one rank; what it remembers is kept by tensor name. Host memory. One thread at a
// time.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::string name() const = 0;
  virtual bool is_dense() const = 0;
  virtual DType wire_dtype() const { return DType::kU8; }

  // in: f32. Replaces what is in `out`.
  virtual void encode(const std::string& tensor, std::span<const float> in, Encoded& out) = 0;
  // out := what was encoded (dense: also what came of summing encodings). Throws Error for bytes
  // that encode() would not have made.
  virtual void decode(std::span<const std::byte> wire, std::span<float> out) const = 0;
  // out += what was encoded.
  virtual void decode_add(std::span<const std::byte> wire, std::span<float> out) const;
};

// "none", "fp16", "bf16", and each with "+feedback": what encoding loses is added to the next
// step's input of the same tensor. UsageError listing the names for another.
std::unique_ptr<Codec> make_codec(std::string_view name);
std::vector<std::string> codec_names();

}  // namespace horon
