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
  uint64_t stream = 0;
  Milliseconds timeout{0};  // without progress
  // The beginning of error messages.
  std::function<std::string()> doing;
  // May be empty. Called on the thread of exchange() for each message that was received, with its
  // index and place (the transport's own memory is valid until the next such message of this stream
  // and peer). May append messages that follow, whose indices go on from the last one's. The order
  // of the messages of a pair of ranks must be the same at both ends.
  std::function<void(size_t index, const void* data, std::vector<Message>& more)> received;
};

// Moves bytes between pairs of ranks. Thread-safe: exchanges on different streams run concurrently.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts all messages and returns when all are done, also those that `received` appended.
  // Messages of one stream between one pair arrive in the order given. Throws TimeoutError naming
  // the peers from which nothing arrived for the timeout, PeerLostError naming those that are gone;
  // the transport is then dead, and nothing is written to the messages' memory any more.
  virtual void exchange(const Exchange& exchange) = 0;
  // Whether messages may be sent before their receiver knows how long they are: it learns that from
  // an earlier message. Up to 64 KB for each pair of ranks.
  virtual bool takes_early() const = 0;
  // How many bytes of an array the members of an operation should work on at a time, so that what
  // arrived is reduced while the next bytes are on their way.
  virtual uint64_t chunk_bytes(size_t members) const = 0;
  // Connects to these ranks, who do the same; for transports that are not connected from the start.
  // Throws TimeoutError naming the ranks that did not connect.
  virtual void connect(const std::vector<int>& peers) = 0;
  // A stream is used by one communicator at a time, between these ranks of the job. Throws if its
  // id collides with another's.
  virtual void open_stream(uint64_t stream, const std::vector<int>& members) = 0;
  virtual void close_stream(uint64_t stream) = 0;
  // Marks the transport dead because of a failure detected elsewhere; other ranks are notified.
  virtual void mark_dead(const Failure& failure) = 0;
  virtual std::optional<Failure> failure() const = 0;
  // Processor time that this rank spent with encryption.
  virtual double seconds_encrypting() const { return 0; }
};

// For transports that know only when all messages of a batch are done: runs batches until no more
// messages are appended. Messages longer than 64 MB are cut: each piece counts as progress.
void exchange_in_batches(const Exchange& exchange,
                         const std::function<void(std::span<const Message>)>& run_batch);

}  // namespace horon
