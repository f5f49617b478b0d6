#pragma once

#include <string>
#include <vector>

#include "horon/base/fd.h"
#include "horon/base/time.h"
#include "horon/net/store.h"

// How the processes of one host get hold of the same memory and of each other's process
// descriptors.
namespace horon::shared {

struct Handover {
  Fd memory;
  std::vector<Fd> processes;  // pidfd of every rank
};

struct HandoverOptions {
  int rank = 0;
  int size = 1;
  std::vector<int> names;  // for messages
  size_t bytes = 0;        // of the memory that rank 0 makes
};

Handover hand_over(const HandoverOptions& options, Store& store, Deadline deadline);

}  // namespace horon::shared
