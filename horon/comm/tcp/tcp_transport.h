#pragma once

#include <memory>
#include <string>

#include "horon/base/log.h"
#include "horon/comm/p2p/transport.h"
#include "horon/net/store.h"

namespace horon {

// This rank, how it connects, and whether its connections are encrypted.
struct TcpOptions {
  int rank = 0;
  int size = 1;
  std::string host_id;
  std::string interface;  // name or address; empty: the one that reaches the peers
  bool one_host = true;
  Milliseconds start_timeout{30000};
  bool is_private = true;            // encrypted and authenticated, else plain
  uint64_t key_bytes = 64ULL << 30;  // encrypted with one key, at most
  int sockets = 1;                   // between two ranks
  std::string congestion = "auto";
  Clock::duration spin = std::chrono::microseconds(50);  // before a wait sleeps
};

// Messages over Horon's own TCP connections (p2p/door.h, net/link.h). One of the threads that wait
// in exchange() moves the bytes of all exchanges; without exchanges sockets are
// read once a second, because systems end connections whose peer does not read.
std::shared_ptr<Transport> make_tcp_transport(const TcpOptions& options,
                                              const std::shared_ptr<Store>& store, const Log& log);

}  // namespace horon
