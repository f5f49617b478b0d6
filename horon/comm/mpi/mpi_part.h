#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/comm/gloo/gloo_transport.h"
#include "horon/comm/p2p/transport.h"
#include "horon/net/store.h"

// MPI as a part: libhoron_mpi_openmpi.so and libhoron_mpi_mpich.so, one of which is opened.
namespace horon {

struct MpiWorld {
  int rank = 0;
  int size = 1;
};

// "openmpi" or "mpich" if this process was started by that mpirun (seen in the environment), else
// "".
std::string mpi_flavour_of_environment();

struct MpiOptions {
  std::string flavour = {};  // empty: from the environment
  int rank = -1;             // what the job believes; -1: whatever MPI says
  int size = -1;
  std::vector<std::string> part_folders = {};
};

// Initialises MPI (once in a process, with threads; a process that ends well finalises it) and
// checks that its world is the job's: outside mpirun MPI silently makes a world of one, which is a
// UsageError here. `store` may be null.
std::shared_ptr<Transport> make_mpi_transport(const MpiOptions& options,
                                              std::shared_ptr<Store> store);

// Rank and size in MPI's world, for programs started by mpirun.
MpiWorld mpi_world(const MpiOptions& options);

// What every rank says, by rank: `mine` from each. Collective.
std::vector<std::string> mpi_exchange(const MpiOptions& options, const std::string& mine);

// The job has failed: MPI_Finalize would wait for the lost rank for ever, so this process will
// leave without it. Throws nothing.
void abandon_mpi(const MpiOptions& options);

// MPI_Allreduce itself, as a peer for benchmarks.
std::unique_ptr<RawPeer> make_raw_mpi(const MpiOptions& options);

}  // namespace horon
