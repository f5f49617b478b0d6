#pragma once

#include <functional>
#include <memory>
#include <string>

#include "horon/base/knob.h"
#include "horon/comm/bootstrap.h"
#include "horon/net/store.h"
#include "horon/net/world.h"

namespace horon {

// Where this process belongs.
struct World {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  // null for one rank; on the rank that serves it, it keeps serving
  int store_rank = -1;           // that serves it; -1: the launcher does
  std::string description;       // "rank 3 of 8, started by mpirun"
  // For whoever finds out that the job has failed: under mpirun the process must then leave without
  // MPI_Finalize, which would wait for the lost rank for ever. May be null.
  std::function<void()> on_failure = {};
};

// Finds out which rank this is and joins the others' store, whoever started the process: `horon
// run`, mpirun (Open MPI, MPICH), srun, TF_CONFIG, or HORON_RANK/HORON_SIZE/HORON_RENDEZVOUS by
// hand. Without our launcher rank 0 serves the store, and returns when all have come. Throws
// UsageError for variables that make no sense, Error with exit code 16 without the job's secret,
// TimeoutError naming the ranks that did not come within start_timeout.
World join_world(const Knobs& knobs, const EnvLookup& env = process_env);

// What make_communicator wants to know of a world.
BootstrapInfo bootstrap_info(const World& world, const Knobs& knobs);

}  // namespace horon
