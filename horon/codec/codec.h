#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/registry.h"
#include "horon/device/stream.h"

namespace horon {

// A tensor within the array that is encoded: the array is a bucket of tensors, or one alone.
// Segments come in the order of their offsets; numbers between them are of no tensor.
struct Segment {
  std::string tensor;
  uint64_t offset = 0;  // of its first number in the array
  uint64_t count = 0;
  // Of the optimizer, as the caller gave it (NamedOptions::step), the same on all ranks. Nothing if
  // he did not: a codec that goes by it then throws UsageError.
  std::optional<uint64_t> step = {};
  // When encoding: what is kept for this tensor from step to step, the arrays of Codec::state() one
  // after the other. Zero the first time. Of other segments' it knows nothing.
  std::span<float> state = {};
  std::span<float> array(size_t which) const { return state.subspan(which * count, count); }
};
using Segments = std::span<const Segment>;

// Where a codec works, and with how much.
struct CodecPlace {
  int threads = 1;           // share large arrays, which changes no bit
  Device device = {};        // where every array lies: numbers, encodings, state
  Stream* stream = nullptr;  // of a device: what is started goes there, the caller waits for it
};

// Makes f32 arrays smaller for the wire, and back. Two kinds:
// - dense: an encoding is an array of wire_dtype() with one element for each number, gaps included;
//   encodings are summed element by element on the way (fp16, bf16);
// - sparse: encodings have a size of their own on every rank; they are gathered, and each is added
//   to the result, in the order of the ranks (top-k).
// A codec keeps nothing itself: what must last is in the segments' state, which the runtime keeps
// by the tensors' names, whatever buckets they come in, and saves and restores
// (runtime/codec_state.h). One caller at a time.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::string name() const = 0;  // as it is registered
  virtual bool is_dense() const = 0;
  virtual DType wire_dtype() const { return DType::kU8; }
  // Names of the arrays that are kept for each tensor, as long as the tensor; none by default. They
  // must be such that only their sum over the ranks matters: it is what survives when a run goes on
  // with another number of ranks.
  virtual std::vector<std::string> state() const { return {}; }
  // Whether encode() and the decodes work on memory of this device. If not, the runtime brings the
  // numbers to host memory and the result back.
  virtual bool takes(const Device& device) const { return device.is_cpu(); }

  // Bytes that an encoding of `count` numbers, gaps included, may have (dense: does have).
  virtual size_t max_bytes(size_t count, Segments segments) const;
  // Into the beginning of `out`, which has max_bytes(); the bytes that were used.
  virtual size_t encode(std::span<const float> in, Segments segments, std::span<std::byte> out) = 0;

  // out := what was encoded (dense: also what came of summing encodings), 0 where nothing was. The
  // segments are as in encode(), on whatever rank that was; but state is not for decoding. Throws
  // Error for bytes that encode() would not have made.
  virtual void decode(std::span<const std::byte> wire, Segments segments,
                      std::span<float> out) const = 0;
  // out += what was encoded. For devices a sparse codec has its own.
  virtual void decode_add(std::span<const std::byte> wire, Segments segments,
                          std::span<float> out) const;

  const CodecPlace& place() const { return place_; }
  virtual void set_place(const CodecPlace& place) { place_ = place; }

 private:
  CodecPlace place_;
};

// The codecs that can be asked for by name: "none", "fp16", "bf16", and what is added. A value, in
// RuntimeOptions; must be equal on all ranks:
//
//   RuntimeOptions options;
//   options.codecs.add("mine", [] { return std::make_unique<Mine>(); });
//
// Each is there with "+feedback", too: what encoding loses is kept and added to the next step's
// numbers of the same tensor.
class CodecRegistry {
 public:
  using Factory = std::function<std::unique_ptr<Codec>()>;
  CodecRegistry();
  // UsageError for a name that is taken, empty, or has a '+'.
  void add(const std::string& name, Factory factory);
  // UsageError that lists the names for one that is not there.
  std::unique_ptr<Codec> make(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  Registry<Factory> codecs_;
};

}  // namespace horon
