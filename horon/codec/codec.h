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

// A tensor within the array that is encoded; the array is a bucket of tensors or a single one.
// Segments are sorted by offset; elements between them belong to no tensor.
struct Segment {
  std::string tensor;
  uint64_t offset = 0;  // of its first element in the array
  uint64_t count = 0;
  // The optimizer's step as given by the caller (NamedOptions::step), the same on all ranks. If it
  // is not given, a codec that needs it throws UsageError.
  std::optional<uint64_t> step = {};
  // For encoding: this tensor's persistent state, the arrays of Codec::state() one after the other.
  // Initially zero.
  std::span<float> state = {};
  std::span<float> array(size_t which) const { return state.subspan(which * count, count); }
};
using Segments = std::span<const Segment>;

// The device and resources that a codec uses.
struct CodecContext {
  int threads = 1;           // split large arrays; does not change the bits
  Device device = {};        // of all arrays: numbers, encodings, state
  Stream* stream = nullptr;  // GPU work is started there; the caller waits for it
};

// Compresses f32 arrays for transfer. There are two kinds:
// - dense: an encoding is an array of wire_dtype() with one element per number, including gaps;
// encodings are summed element by element during the reduction (fp16, bf16);
// - sparse: encodings differ in size between ranks; they are gathered, and each is added to the
// result, in rank order (top-k).
// A codec stores nothing itself: persistent data is in the segments' state, which the runtime keeps
// by tensor name, independent of buckets, and saves and restores (runtime/codec_state.h). One
// caller at a time.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::string name() const = 0;  // as registered
  virtual bool is_dense() const = 0;
  virtual DType wire_dtype() const { return DType::kU8; }
  // Names of the state arrays per tensor, each as long as the tensor; none by default. Only their
  // sum over the ranks may matter, because only the sum is preserved when a run resumes with
  // another number of ranks.
  virtual std::vector<std::string> state() const { return {}; }
  // Whether encode() and decode() work on memory of this device. If not, the runtime copies the
  // numbers to host memory and the result back.
  virtual bool takes(const Device& device) const { return device.is_cpu(); }

  // Maximum size in bytes of an encoding of `count` numbers, including gaps (dense: the exact
  // size).
  virtual size_t max_bytes(size_t count, Segments segments) const;
  // Encodes into `out`, which has max_bytes(); returns the bytes used.
  virtual size_t encode(std::span<const float> in, Segments segments, std::span<std::byte> out) = 0;

  // out := the decoded numbers (dense: also of a sum of encodings), 0 where nothing was encoded.
  // The segments are those of encode(), on any rank, but without state. Throws Error for bytes that
  // encode() does not produce.
  virtual void decode(std::span<const std::byte> wire, Segments segments,
                      std::span<float> out) const = 0;
  // out += the decoded numbers. A sparse codec that supports devices must override this.
  virtual void decode_add(std::span<const std::byte> wire, Segments segments,
                          std::span<float> out) const;

  const CodecContext& context() const { return context_; }
  // Called by the runtime before encode() and decode(). A codec that wraps another passes it on.
  virtual void set_context(const CodecContext& context) { context_ = context; }

 private:
  CodecContext context_;
};

// The codecs available by name: "none", "fp16", "bf16", and those added. A value type, in
// RuntimeOptions; must be equal on all ranks:
//
//   RuntimeOptions options;
//   options.codecs.add("mine", [] { return std::make_unique<Mine>(); });
//
// Each codec also exists with "+feedback": the encoding error is kept and added to the next step's
// values of the same tensor.
class CodecRegistry {
 public:
  using Factory = std::function<std::unique_ptr<Codec>()>;
  CodecRegistry();
  // UsageError if the name is taken, empty, or contains '+'.
  void add(const std::string& name, Factory factory);
  // UsageError that lists the known names if there is none.
  std::unique_ptr<Codec> make(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  Registry<Factory> codecs_;
};

}  // namespace horon
