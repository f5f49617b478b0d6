#pragma once

#include <functional>
#include <memory>
#include <string>

#include "horon/base/job_settings.h"
#include "horon/comm/bootstrap.h"
#include "horon/net/membership.h"
#include "horon/net/store.h"

namespace horon {

// This process's rank and its connection to the job.
struct Membership {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  // null for one rank; also owns the server on the serving rank
  int store_rank = -1;           // the rank that serves it; -1: the launcher
  std::string description;       // "rank 3 of 8, started by mpirun"
  // Call it when the job has failed: under mpirun the process must then exit without MPI_Finalize,
  // which would wait forever for the lost rank. May be null.
  std::function<void()> on_failure = {};
};

// Detects which rank this is and connects to the job's store, whatever started the process: `horon
// run`, mpirun (Open MPI, MPICH), srun, TF_CONFIG, or HORON_RANK/HORON_SIZE/HORON_RENDEZVOUS by
// hand. Without our launcher rank 0 serves the store and returns when all ranks have connected.
// Throws UsageError for invalid variables, Error with exit code 16 without the job's secret,
// TimeoutError naming the ranks that did not connect within start_timeout.
//
//   const Membership membership = enter_job(settings);  // programs usually create a Session
//   instead const auto comm = make_communicator(bootstrap_info(membership, settings));
Membership enter_job(const JobSettings& job_settings, const EnvLookup& env = process_env);

// The arguments of make_communicator for this process.
BootstrapInfo bootstrap_info(const Membership& membership, const JobSettings& job_settings);

}  // namespace horon
