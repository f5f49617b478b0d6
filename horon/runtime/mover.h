#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "horon/runtime/codec_state.h"
#include "horon/runtime/gate.h"
#include "horon/runtime/tensor.h"

namespace horon {

// Moves the bytes of operations over one communicator as their specs say: scaled, encoded, in
// chunks that let urgent operations overtake. One thread at a time. Inputs that are not outputs,
// too, are never written.
class Mover {
 public:
  struct Options {
    Milliseconds timeout{600'000};     // longest wait for other ranks
    uint64_t chunk_bytes = 16U << 20;  // larger transfers are cut into such pieces; 0: never
    bool urgent = false;               // others make way for us; nothing is cut
    std::shared_ptr<Gate> gate;        // may be null
    int codec_threads = 1;
    CodecRegistry codecs;
    std::shared_ptr<CodecMemory> memory;  // what codecs keep; null: of this mover alone
  };

  // `comm` lives longer.
  Mover(Communicator& comm, Options options);

  // With a codec the segments are the tensors in it, without state. False if another rank deviated
  // (only if that is allowed): then nothing was changed. UsageError before anything was changed if
  // ranks give it different steps.
  bool move(Request request, const TensorSpec& spec, std::vector<Segment> segments,
            bool may_deviate);

  // Where peers reach it, or on that device.
  OwnedBuffer allocate(uint64_t count, DType dtype, const Device& device) const;
  void set_codec_threads(int threads) { options_.codec_threads = threads; }
  int codec_threads() const { return options_.codec_threads; }

 private:
  void prepare(Request& request, double factor, std::vector<OwnedBuffer>& copies) const;
  bool move_plain(const Request& request, bool may_deviate);
  void move_encoded(const Request& request, const TensorSpec& spec, std::vector<Segment>& segments);
  // An array that is encoded, where its codec works.
  struct Encoded {
    Codec& codec;
    const TensorSpec& spec;
    std::vector<Segment>& segments;
    BufferView numbers;
    Stream* stream = nullptr;  // null: host memory
  };
  void move_dense(const Request& request, const Encoded& what);
  void move_sparse(const Request& request, const Encoded& what);
  void add_up(const Gathered& gathered, const Request& request, const Encoded& what);
  BufferView wire(const Encoded& what, uint64_t count);

  Communicator& comm_;
  Options options_;
  std::map<std::string, std::unique_ptr<Codec>> codecs_;
  std::map<std::string, OwnedBuffer> wires_;  // their memory, by codec: one transfer at a time
};

}  // namespace horon
