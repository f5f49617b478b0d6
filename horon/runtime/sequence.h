#pragma once

#include <memory>
#include <optional>

#include "horon/comm/op_queue.h"
#include "horon/runtime/ledger.h"
#include "horon/runtime/mover.h"

namespace horon {

// Operations without a name: they run in the order of their calls, which is the same on all ranks.
// Any thread may call.
class Sequence {
 public:
  Sequence(std::unique_ptr<Communicator> comm, Mover::Options mover, Ledger::Options ledger);
  // As Lane's: what has not begun ends with an Error, what waits for others is given up after two
  // seconds.
  ~Sequence();
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // `step`: for the codec.
  Work start(TensorSpec spec, Request request, std::optional<uint64_t> step = {});
  // On this thread if nothing is queued.
  void run(const TensorSpec& spec, const Request& request, std::optional<uint64_t> step = {});
  // Takes part with nothing until all ranks have joined.
  int join();

  const Ledger& ledger() const { return ledger_; }

 private:
  void move(const TensorSpec& spec, Request request, std::optional<uint64_t> step);

  Ledger ledger_;
  std::unique_ptr<Communicator> comm_;
  Mover mover_;
  OpQueue queue_;  // last: its thread uses the others
};

}  // namespace horon
