#pragma once

#include <memory>
#include <string>

#include "horon/comm/p2p/transport.h"
#include "horon/net/store.h"

namespace horon {

// This rank and how it connects.
struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string host_id;
  std::string interface;  // name or address; empty: the one that reaches the peers
  bool one_host = true;
  Milliseconds start_timeout{30000};
};

// Gloo over a full mesh of TCP connections (p2p/door.h); addresses are exchanged through the store.
std::shared_ptr<Transport> make_gloo_transport(const GlooOptions& options,
                                               const std::shared_ptr<Store>& store);

}  // namespace horon
