#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/base/job_settings.h"
#include "horon/base/log.h"
#include "horon/comm/engine/channel.h"
#include "horon/comm/topology.h"
#include "horon/device/stream.h"
#include "horon/net/store.h"

// The table of backends: names, algorithms, factories.
namespace horon {

// The allowed values of the setting `backend`.
std::vector<std::string> backend_names();

// What the backends publish under these settings; used for choosing, printing and overriding.
std::vector<Published> published_algorithms(const JobSettings& job_settings);
// Checks the setting `algorithm` for a backend given by name; the error text, or empty.
std::string check_algorithms(const std::string& backend, const JobSettings& job_settings);

// How many GPUs NCCL could use on this host; 0 without a device runtime or the nccl part, and if
// the setting `backend` is not "auto", because the number is then unused.
int usable_gpus(const JobSettings& job_settings, const DeviceRuntime* device);

// The backend that "auto" selects, the same on every rank: self for one rank, shm on one host, hier
// on several; wrapped by nccl if every rank can have its own GPU (NCCL refuses to share one). Pure;
// gpus[r] is the number reported by rank r.
std::string auto_backend(const Topology& topology, std::span<const int> gpus);

// The arguments for creating a rank's backend.
struct BackendSetup {
  const JobSettings& job_settings;
  Topology topology;             // of the job, with our rank
  std::shared_ptr<Store> store;  // of this communicator only; null for one rank and under mpirun
  std::string host;              // RankLocation::host
  std::vector<int> gpus;         // RankLocation::gpus of each rank
  std::shared_ptr<DeviceRuntime> device;  // may be null
  const Log& log;
};
// Creates the backend with this name (a value of the setting `backend`; "auto" selects one).
// Collective. Throws UsageError for one that does not fit this job, or whose part is missing.
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendSetup& setup);

// Ranks as threads of this process: returns one backend per rank.
std::vector<std::unique_ptr<Backend>> make_thread_backends(int size,
                                                           const JobSettings& job_settings);

}  // namespace horon
