#pragma once

#include <array>
#include <functional>
#include <memory>

#include "horon/comm/communicator.h"

namespace horon {

// Stages device memory through pinned host memory that peers reach without a copy, in pieces, on
// streams of its own: while one piece is reduced, the next is copied from the device and the
// previous one back. Its memory, three pieces, is allocated on first use. Not thread-safe: one
// thread at a time.
class DeviceStage {
 public:
  static constexpr uint64_t kPieceBytes = 4U << 20;

  explicit DeviceStage(Communicator& comm) : comm_(comm) {}  // outlives this

  // Calls run(piece) for each piece, in order, with its contents in host memory; run() leaves the
  // result there. If the first call returns false, nothing else happens and the data are unchanged.
  // `is_ready`: the data can be read now; otherwise after the work queued on the device's default
  // stream. Returns when the results are in device memory.
  bool move(const BufferView& data, bool is_ready,
            const std::function<bool(const BufferView& piece)>& run);

 private:
  struct Slot {
    OwnedBuffer memory;
    std::shared_ptr<void> pinned;
    std::unique_ptr<Stream> stream;
  };
  void prepare(int device);

  Communicator& comm_;
  std::array<Slot, 3> slots_;  // one is filled, one reduced, one emptied
  int device_ = -1;            // that the streams belong to
};

}  // namespace horon
