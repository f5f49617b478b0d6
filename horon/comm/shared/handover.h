#pragma once

#include <string>
#include <vector>

#include "horon/base/fd.h"
#include "horon/base/time.h"
#include "horon/net/store.h"

// Gives the processes of one host access to the same memory and to each other's process
// descriptors.
namespace horon::shared {

// The descriptors that each process receives.
struct Handover {
  Fd memory;
  std::vector<Fd> processes;  // pidfd of every rank
};

// This process among those of its host.
struct HandoverOptions {
  int rank = 0;
  int size = 1;
  std::vector<int> names;  // ranks in the job, for messages
  size_t bytes = 0;        // of the memory that rank 0 creates
};

// Collective over the processes of this host. Throws TimeoutError naming the ranks that did not
// connect.
Handover hand_over(const HandoverOptions& options, Store& store, Deadline deadline);

}  // namespace horon::shared
