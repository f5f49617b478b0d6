#pragma once

#include <memory>
#include <string>

#include "horon/comm/p2p/transport.h"
#include "horon/net/store.h"

namespace horon {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  std::string host_id;
  std::string interface;  // name or address; empty: what reaches the peers
  bool one_host = true;
  Milliseconds start_timeout{30000};
};

// Gloo over a full mesh of TCP connections (p2p/door.h); addresses travel through the store.
std::shared_ptr<Transport> make_gloo_transport(const GlooOptions& options,
                                               const std::shared_ptr<Store>& store);

// A library's own all-reduce over connections that it made by itself, as a peer for benchmarks: f32
// sum in place. No socket of it has met a setting of ours.
class RawPeer {
 public:
  virtual ~RawPeer() = default;
  virtual void all_reduce(float* data, uint64_t count) = 0;
};
// Between processes of this machine.
std::unique_ptr<RawPeer> make_raw_gloo(int rank, int size, std::shared_ptr<Store> store);

}  // namespace horon
