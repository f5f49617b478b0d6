#pragma once

#include <string>
#include <vector>

#include "horon/base/fd.h"
#include "horon/base/time.h"
#include "horon/net/store.h"

namespace horon {

struct DoorOptions {
  int rank = 0;
  int size = 1;
  std::string interface;  // name or address; empty: what reaches the peers
  bool one_host = true;
  Milliseconds start_timeout{30000};
};

// A TCP connection to every other rank (nothing at our own place). Collective. Each rank listens
// on one port of one address until all have come, then nobody listens any more. Both ends of a
// connection prove that they know a key which travels through the store; strangers are let go
// before they have sent more than 32 bytes and cannot keep a rank out by their number. What follows
// on the connections is not encrypted. Throws TimeoutError naming the ranks that did not come.
std::vector<Fd> connect_mesh(const DoorOptions& options, Store& store);

// Pure: the address to listen on, from what each rank's connection to the store looks like ("": not
// known) and this host's routes. Ours if the store is on another host; if it is here, the one that
// leads to a rank elsewhere.
std::string choose_address(int rank, const std::vector<std::string>& seen);

}  // namespace horon
