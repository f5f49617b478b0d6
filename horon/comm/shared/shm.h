#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/base/log.h"
#include "horon/comm/channel.h"
#include "horon/net/store.h"

namespace horon::shared {

struct ShmOptions {
  int rank = 0;  // among the processes of this host
  int size = 1;
  std::vector<int> names;   // rank in the job of each of them
  uint64_t heap_bytes = 0;  // address space for one rank's heap
  size_t inline_bytes = 0;
  std::string spin = "auto";
  Milliseconds start_timeout{30000};
};

// Processes of one host: rank 0 makes anonymous memory and hands the descriptor to the others
// through a socket in a folder that only this user can enter; who connects must be the same user
// and know the token from the store. Everybody also gets a descriptor of every process, on which a
// watcher thread learns of a death within a millisecond. Throws TimeoutError naming the ranks that
// did not come.
std::unique_ptr<Backend> make_shm_backend(const ShmOptions& options, Store& store, const Log& log);

}  // namespace horon::shared
