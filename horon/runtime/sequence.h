#pragma once

#include <memory>
#include <optional>

#include "horon/comm/engine/op_queue.h"
#include "horon/runtime/ledger.h"
#include "horon/runtime/mover.h"

namespace horon {

// The unnamed operations of one set of ranks: they run in the order of their calls, which is the
// same on all ranks. Owns its communicator and a thread. Thread-safe; errors as Communicator's.
class Sequence {
 public:
  // All ranks of `comm` make one.
  Sequence(std::unique_ptr<Communicator> comm, Mover::Options mover, Ledger::Options ledger);
  // As Lane's: operations that have not started end with an Error, an operation that waits for
  // other ranks is abandoned after two seconds.
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Queues an operation. `step`: for the codec.
  Work start(TensorSpec spec, Request request, std::optional<uint64_t> step = {});
  // Runs an operation and waits for it, on this thread if nothing is queued.
  void run(const TensorSpec& spec, const Request& request, std::optional<uint64_t> step = {});
  // Contributes nothing until all ranks have joined. Returns the rank that joined last.
  int join();

  const Ledger& ledger() const { return ledger_; }

 private:
  void move(const TensorSpec& spec, Request request, std::optional<uint64_t> step);

  Ledger ledger_;
  std::unique_ptr<Communicator> comm_;
  Mover mover_;
  OpQueue queue_;  // last: its thread uses the other members
};

}  // namespace horon
