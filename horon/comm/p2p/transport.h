#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "horon/comm/failure.h"
#include "horon/comm/types.h"

namespace horon {

// One message of an exchange. Both sides know its size, because headers were compared before.
struct Message {
  int peer = 0;  // rank in the job
  bool is_send = false;
  void* data = nullptr;
  uint64_t bytes = 0;
};

// Moves bytes between pairs of ranks; implemented with Gloo and MPI. Thread-safe: exchanges on
// different streams run concurrently.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts all messages and returns when all are done. Messages of one stream between one pair
  // arrive in the order given. Error messages begin with `doing`. Throws TimeoutError naming the
  // peers from which nothing arrived for `timeout`, PeerLostError naming those that are gone; the
  // transport is then dead.
  virtual void exchange(std::span<const Message> messages, uint64_t stream, Milliseconds timeout,
                        const std::string& doing) = 0;
  // A stream is used by one communicator at a time. Throws if its id collides with another's.
  virtual void open_stream(uint64_t stream) = 0;
  virtual void close_stream(uint64_t stream) = 0;
  // Marks the transport dead because of a failure detected elsewhere; other ranks are notified.
  virtual void mark_dead(const Failure& failure) = 0;
  virtual std::optional<Failure> failure() const = 0;
};

}  // namespace horon
