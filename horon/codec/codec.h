#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horon/device/buffer.h"

namespace horon {

// Makes f32 arrays smaller for the wire, and back. Two kinds:
// - dense: encodings are arrays of wire_dtype(), as long as the input, that can be summed element
// by
//   element on the way (fp16, bf16);
// - sparse: encodings have a size of their own on every rank; they are gathered, and each is added
//   to the result (top-k).
// An object serves one rank; what it remembers is kept by tensor name. Host memory. One caller at a
// time; large arrays are shared between threads() threads, which changes no bit.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::string name() const = 0;
  virtual bool is_dense() const = 0;
  virtual DType wire_dtype() const { return DType::kU8; }

  // Bytes that an encoding of `count` numbers may have (dense: does have).
  virtual size_t max_bytes(size_t count) const { return count * size_of(wire_dtype()); }
  // Into the beginning of `out`, which has max_bytes(in.size()); the bytes that were used.
  virtual size_t encode(const std::string& tensor, std::span<const float> in,
                        std::span<std::byte> out) = 0;

  // out := what was encoded (dense: also what came of summing encodings). Throws Error for bytes
  // that encode() would not have made.
  virtual void decode(std::span<const std::byte> wire, std::span<float> out) const = 0;
  // out += what was encoded.
  virtual void decode_add(std::span<const std::byte> wire, std::span<float> out) const;

  int threads() const { return threads_; }
  virtual void set_threads(int threads) { threads_ = threads; }

 private:
  int threads_ = 1;
};

// "none", "fp16", "bf16", and each with "+feedback": what encoding loses is added to the next
// step's input of the same tensor. UsageError listing the names for another.
std::unique_ptr<Codec> make_codec(std::string_view name);
std::vector<std::string> codec_names();

}  // namespace horon
