#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horon/comm/failure.h"
#include "horon/comm/types.h"

namespace horon {

// One message of an exchange. Both sides know its size, because headers were compared before.
struct Message {
  int peer = 0;  // rank in the job
  bool is_send = false;
  void* data = nullptr;  // null: received into memory of the transport (which takes_early())
  uint64_t bytes = 0;
};

// Messages that are sent and received together.
struct Exchange {
  std::span<const Message> messages;
  uint64_t flow = 0;
  Milliseconds timeout{0};  // without progress
  // The beginning of error messages.
  std::function<std::string()> doing;
  // May be empty. Called on the thread of exchange() for each received message, with its index and
  // address (the transport's own memory is valid until the next such message of this flow and
  // peer). May append further messages, which get the next indices. The order of the messages of a
  // pair of ranks must be the same at both ends.
  std::function<void(size_t index, const void* data, std::vector<Message>& more)> received;
};

// Moves bytes between pairs of ranks. Thread-safe: exchanges on different flows run concurrently.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts all messages and returns when all are done, also those that `received` appended.
  // Messages of one flow between one pair arrive in the order given. Throws TimeoutError naming
  // the peers from which nothing arrived for the timeout, PeerLostError naming those that are gone;
  // the transport is then dead, and nothing is written to the messages' memory any more.
  virtual void exchange(const Exchange& exchange) = 0;
  // True if messages may be sent before their receiver knows their size from an earlier message; up
  // to 64 KB for each pair of ranks.
  virtual bool takes_early() const = 0;
  // The size of the chunks into which an operation of so many members should be cut, so that one is
  // reduced while the next is received.
  virtual uint64_t chunk_bytes(size_t members) const = 0;
  // Connects to these ranks, who do the same; for transports that are not connected from the start.
  // Throws TimeoutError naming the ranks that did not connect.
  virtual void connect(const std::vector<int>& peers) = 0;
  // A flow is used by one communicator at a time, between these ranks of the job. Throws if its
  // id collides with another's.
  virtual void open_flow(uint64_t flow, const std::vector<int>& members) = 0;
  virtual void close_flow(uint64_t flow) = 0;
  // Marks the transport dead because of a failure detected elsewhere; other ranks are notified.
  virtual void mark_dead(const Failure& failure) = 0;
  virtual std::optional<Failure> failure() const = 0;
  // Processor time that this rank has spent on encryption, in seconds.
  virtual double seconds_encrypting() const { return 0; }
};

// For transports that know only when all messages of a batch are done: runs batches until no more
// messages are appended. Messages longer than 64 MB are cut: each piece counts as progress.
void exchange_in_batches(const Exchange& exchange,
                         const std::function<void(std::span<const Message>)>& run_batch);

}  // namespace horon
