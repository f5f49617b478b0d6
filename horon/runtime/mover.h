#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "horon/codec/codec.h"
#include "horon/comm/communicator.h"
#include "horon/runtime/gate.h"
#include "horon/runtime/tensor.h"

namespace horon {

// Moves the bytes of operations over one communicator as their specs say: scaled, encoded, in
// chunks that let urgent operations overtake. One thread at a time. Inputs that are not outputs,
// too, are never written.
class Mover {
 public:
  using MakeCodec = std::function<std::unique_ptr<Codec>(const std::string& name)>;
  struct Options {
    Milliseconds timeout{600'000};     // longest wait for other ranks
    uint64_t chunk_bytes = 16U << 20;  // larger transfers are cut into such pieces; 0: never
    bool urgent = false;               // others make way for us; nothing is cut
    std::shared_ptr<Gate> gate;        // may be null
    int codec_threads = 1;
    MakeCodec make_codec;  // default: codec.h's
  };
  // A tensor within what is moved.
  struct Part {
    std::string name;
    uint64_t offset = 0;  // elements
    uint64_t count = 0;
  };

  // `comm` lives longer.
  Mover(Communicator& comm, Options options);

  // What codecs remember is kept by the names of the parts. False if another rank deviated (only
  // if that is allowed): then nothing was changed.
  bool move(Request request, const TensorSpec& spec, std::span<const Part> parts, bool may_deviate);

  // Where peers reach it, or on that device.
  OwnedBuffer allocate(uint64_t count, DType dtype, const Device& device) const;
  void set_codec_threads(int threads) { options_.codec_threads = threads; }
  int codec_threads() const { return options_.codec_threads; }

 private:
  void prepare(Request& request, double factor, std::vector<OwnedBuffer>& copies) const;
  bool move_plain(const Request& request, bool may_deviate);
  void move_encoded(const Request& request, const TensorSpec& spec, std::span<const Part> parts);
  void move_dense(const Request& request, Codec& codec, std::span<const Part> parts,
                  std::span<float> numbers);
  void move_sparse(const Request& request, Codec& codec, std::span<const Part> parts,
                   std::span<float> numbers);
  BufferView wire(const Codec& codec, uint64_t count);

  Communicator& comm_;
  Options options_;
  std::map<std::string, std::unique_ptr<Codec>> codecs_;
  std::map<std::string, OwnedBuffer> wires_;  // their memory, by codec: one transfer at a time
};

}  // namespace horon
