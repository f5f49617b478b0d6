#pragma once

#include <memory>
#include <string>

#include "horon/base/log.h"
#include "horon/comm/p2p/transport.h"
#include "horon/net/store.h"

namespace horon {

// This rank, how it connects, and what its bytes are on the way.
struct TcpOptions {
  int rank = 0;
  int size = 1;
  std::string host_id;
  std::string interface;  // name or address; empty: the one that reaches the peers
  bool one_host = true;
  Milliseconds start_timeout{30000};
  bool is_private = true;            // encrypted and authenticated, else plain
  uint64_t key_bytes = 64ULL << 30;  // at most so many under one key
  int sockets = 1;                   // between two ranks
  std::string congestion = "auto";
  Clock::duration spin = std::chrono::microseconds(50);  // before a wait sleeps
};

// Messages over TCP connections of our own (p2p/door.h, net/link.h). Threads that wait in
// exchange() move the bytes of all, one at a time; no thread runs and no time is used while nobody
// waits.
std::shared_ptr<Transport> make_tcp_transport(const TcpOptions& options,
                                              const std::shared_ptr<Store>& store, const Log& log);

}  // namespace horon
