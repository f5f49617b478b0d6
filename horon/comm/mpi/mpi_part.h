#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/comm/p2p/transport.h"
#include "horon/net/store.h"

// MPI as a part: libhoron_mpi_openmpi.so or libhoron_mpi_mpich.so, of which one is opened.
namespace horon {

// This process in MPI_COMM_WORLD.
struct MpiIdentity {
  int rank = 0;
  int size = 1;
};

// "openmpi" or "mpich" if that mpirun started this process (according to the environment), else "".
std::string mpi_flavour_of_environment();

// Which MPI to open, and the expected rank and size.
struct MpiOptions {
  std::string flavour = {};  // empty: from the environment
  int rank = -1;             // expected by the job; -1: MPI's
  int size = -1;
  std::vector<std::string> part_folders = {};
};

// Initialises MPI (once per process, with thread support; finalised if the process ends
// successfully) and checks that MPI's rank and size are those of the job: outside mpirun MPI
// silently creates a job of one rank, which is a UsageError here. `store` may be null.
std::shared_ptr<Transport> make_mpi_transport(const MpiOptions& options,
                                              std::shared_ptr<Store> store);

// Rank and size in MPI_COMM_WORLD, for programs started by mpirun.
MpiIdentity mpi_identity(const MpiOptions& options);

// Gathers `mine` from every rank, indexed by rank. Collective.
std::vector<std::string> mpi_exchange(const MpiOptions& options, const std::string& mine);

// Call it when the job has failed: the process will exit without MPI_Finalize, which would wait
// forever for the lost rank. Does not throw.
void abandon_mpi(const MpiOptions& options);

}  // namespace horon
