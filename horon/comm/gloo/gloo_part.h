#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/comm/p2p/transport.h"
#include "horon/net/store.h"

// Gloo as a part, libhoron_gloo.so: nothing else links it.
namespace horon {

// This rank and how it connects.
struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string host_id;
  std::string interface;  // name or address; empty: the one that reaches the peers
  bool one_host = true;
  Milliseconds start_timeout{30000};
  std::vector<std::string> part_folders = {};
};

// Gloo over a full mesh of TCP connections (p2p/door.h); addresses are exchanged through the store.
// UsageError if the part does not load, or if this process has loaded another Gloo: LibTorch brings
// one, and two of them mix and crash.
std::shared_ptr<Transport> make_gloo_transport(const GlooOptions& options,
                                               const std::shared_ptr<Store>& store);

}  // namespace horon
