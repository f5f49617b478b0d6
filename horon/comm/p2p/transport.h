#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "horon/comm/failure.h"
#include "horon/comm/types.h"

namespace horon {

// One message of an exchange. Both sides know its size: headers were compared before.
struct Message {
  int peer = 0;  // rank in the job
  bool is_send = false;
  void* data = nullptr;
  uint64_t bytes = 0;
};

// Bytes between pairs of ranks; what Gloo and MPI are to us. Thread-safe: exchanges of different
// streams run at the same time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts all messages and returns when all are done. Messages of one stream between one pair
  // arrive in the order in which they were given. `doing` begins error messages. Throws
  // TimeoutError naming the peers that nothing came from for `timeout`, PeerLostError naming those
  // that are gone; the transport is then dead.
  virtual void exchange(std::span<const Message> messages, uint64_t stream, Milliseconds timeout,
                        const std::string& doing) = 0;
  // A stream is used by one group at a time. Throws if its name cannot be told from another's.
  virtual void open_stream(uint64_t stream) = 0;
  virtual void close_stream(uint64_t stream) = 0;
  // Something outside saw a failure: nothing works from now on, and other ranks learn of it.
  virtual void mark_dead(const Failure& failure) = 0;
  virtual std::optional<Failure> failure() const = 0;
};

}  // namespace horon
