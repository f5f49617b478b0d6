#pragma once

#include <string>
#include <vector>

#include "horon/base/fd.h"
#include "horon/base/time.h"
#include "horon/net/store.h"

namespace horon {

// This rank, and where it listens.
struct DoorOptions {
  int rank = 0;
  int size = 1;
  std::string interface;  // name or address; empty: the one that reaches the peers
  bool one_host = true;
  Milliseconds start_timeout{30000};
};

// Opens a TCP connection to every other rank (none at our own index). Collective. Each rank listens
// on one port of one address until all have connected, then stops listening. Both ends of a
// connection prove that they know a key exchanged through the store; other connections are closed
// after at most 32 bytes, and however many there are, they cannot keep a rank out. Data on the
// connections is not encrypted. Throws TimeoutError naming the ranks that did not connect.
std::vector<Fd> connect_mesh(const DoorOptions& options, Store& store);

// Pure: the address to listen on, chosen from the addresses of the ranks' connections to the store
// ("": unknown) and this host's routes. Our own if the store is on another host; if it is on this
// host, the one that leads to a rank elsewhere.
std::string choose_address(int rank, const std::vector<std::string>& seen);

}  // namespace horon
