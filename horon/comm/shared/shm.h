#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/base/log.h"
#include "horon/comm/engine/channel.h"
#include "horon/net/store.h"

namespace horon::shared {

// This process among those of its host, and the sizes of the region.
struct ShmOptions {
  int rank = 0;  // number among the processes of this host
  int size = 1;
  std::vector<int> names;   // rank in the job of each of them
  uint64_t heap_bytes = 0;  // address space for one rank's heap
  size_t inline_bytes = 0;
  std::string spin = "auto";
  Milliseconds start_timeout{30000};
};

// Processes of one host: rank 0 creates anonymous memory and passes the descriptor to the others
// through a socket in a folder that only this user can access; a connecting process must belong to
// the same user and know the token from the store. Each process also gets a descriptor of every
// other one, by which a watcher thread detects its end within a millisecond. Throws TimeoutError
// naming the ranks that did not connect.
std::unique_ptr<Backend> make_shm_backend(const ShmOptions& options, Store& store, const Log& log);

}  // namespace horon::shared
