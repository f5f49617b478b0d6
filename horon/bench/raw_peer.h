#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "horon/net/store.h"

namespace horon::bench {

// A library's own all-reduce, f32 sum in place, over connections that it made itself. None of our
// settings apply to its sockets.
class RawPeer {
 public:
  virtual ~RawPeer() = default;
  virtual void all_reduce(float* data, uint64_t count) = 0;
};

// gloo::allreduce between processes of this host. UsageError: its part does not load.
std::unique_ptr<RawPeer> make_raw_gloo(int rank, int size, const std::shared_ptr<Store>& store,
                                       const std::vector<std::string>& part_folders);
// MPI_Allreduce, in a process started by mpirun. UsageError: it was not, or MPI's part does not
// load.
std::unique_ptr<RawPeer> make_raw_mpi(const std::vector<std::string>& part_folders);

}  // namespace horon::bench
