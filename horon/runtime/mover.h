#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "horon/runtime/codec_state.h"
#include "horon/runtime/device_stage.h"
#include "horon/runtime/gate.h"
#include "horon/runtime/tensor.h"

namespace horon {

// The mover: moves the bytes of operations over one communicator as their specs require: scaled,
// encoded, and in chunks that urgent operations can overtake. It owns the codecs and the memory of
// their encodings; each lane and each sequence has one. One thread at a time; calls block until the
// bytes have moved. Inputs that are not also outputs are never written. Errors as Communicator's.
class Mover {
 public:
  struct Options {
    Milliseconds timeout{600'000};     // longest wait for other ranks
    uint64_t chunk_bytes = 16U << 20;  // larger transfers are split into such chunks; 0: never
    bool urgent = false;               // other operations make way; nothing is split
    std::shared_ptr<Gate> gate;        // may be null
    int codec_threads = 1;
    CodecRegistry codecs;
    std::shared_ptr<CodecMemory> memory;  // codec state; null: private to this mover
  };

  // `comm` outlives the mover.
  Mover(Communicator& comm, Options options);

  // Runs one transfer. With a codec, `segments` are the tensors in it, without state. False if
  // another rank deviated (only if `may_deviate`); then nothing was changed. UsageError, before
  // anything is changed, if the ranks give it different steps.
  bool move(Request request, const TensorSpec& spec, std::vector<Segment> segments,
            bool may_deviate);

  // Allocates memory that peers can reach, or memory on that device.
  OwnedBuffer allocate(uint64_t count, DType dtype, const Device& device) const;
  void set_codec_threads(int threads) { options_.codec_threads = threads; }
  int codec_threads() const { return options_.codec_threads; }

 private:
  void prepare(Request& request, double factor, std::vector<OwnedBuffer>& copies) const;
  bool move_plain(const Request& request, bool may_deviate);
  bool is_staged(const Request& request) const;
  bool move_staged(const Request& request, double after, bool may_deviate);
  void move_encoded(const Request& request, const TensorSpec& spec, std::vector<Segment>& segments);
  // An array that is encoded, in the memory where its codec works.
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
  DeviceStage stage_;
  std::map<std::string, std::unique_ptr<Codec>> codecs_;
  std::map<std::string, OwnedBuffer>
      wires_;  // memory of encodings, by codec: one transfer at a time
};

}  // namespace horon
