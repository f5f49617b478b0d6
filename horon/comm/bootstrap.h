#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/base/job_settings.h"
#include "horon/base/log.h"
#include "horon/comm/communicator.h"
#include "horon/net/store.h"

namespace horon {

// What a rank needs in order to connect to the others.
struct BootstrapInfo {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  // shared by all ranks; may be null for one rank and under mpirun
  JobSettings job_settings;
  std::string name = "world";  // separates communicators; several under one name are numbered
  std::shared_ptr<DeviceRuntime> device;  // for device buffers; may be null
  std::function<void()> on_failure = {};  // called after a rank was lost or late; may be null
};

// Creates the communicator of all ranks over the backend that info.job_settings selects.
// Collective. With nccl a rank uses the GPU with its number on the host (local_rank). Throws
// UsageError for an unknown name, a missing part, or an `algorithm` that the backend does not have;
// on all ranks UsageError (exit code 11) for settings that must be equal and are not
// (net/compare.h); TimeoutError naming the ranks that did not connect.
//
//   const Membership membership = enter_job(settings);  // programs usually create a Session
//   instead const auto comm = make_communicator(bootstrap_info(membership, settings));
std::unique_ptr<Communicator> make_communicator(const BootstrapInfo& info);

// Ranks as threads of this process: returns one communicator per rank. `device` as above.
//
//   auto ranks = make_local_world(2);
//   std::jthread other([&] { ranks[1]->barrier(); });
//   ranks[0]->barrier();
std::vector<std::unique_ptr<Communicator>> make_local_world(
    int size, const JobSettings& job_settings = {},
    const std::shared_ptr<DeviceRuntime>& device = nullptr);

}  // namespace horon
