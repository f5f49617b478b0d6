#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/base/knob.h"
#include "horon/base/log.h"
#include "horon/comm/communicator.h"
#include "horon/net/store.h"

namespace horon {

// What a rank must know to find the others.
struct BootstrapInfo {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  // shared by all ranks; may be null for one rank and under mpirun
  Knobs knobs;
  std::string name =
      "world";  // communicators made one after the other under one name are kept apart
  std::shared_ptr<DeviceRuntime> device;  // for device buffers; may be null
  std::function<void()> on_failure = {};  // a rank was lost, late or never came; may be null
};

// The names that the setting `backend` takes.
std::vector<std::string> backend_names();

// Makes the communicator of all ranks over the backend that info.knobs asks for ("auto": self for
// one rank, shm on one host, hier on several). Collective. Throws UsageError for an unknown name or
// a part that is missing, and, the same on all ranks (exit code 11), for settings that differ and
// must not (net/compare.h); TimeoutError naming the ranks that did not come.
std::unique_ptr<Communicator> make_communicator(const BootstrapInfo& info);

// Ranks as threads of this process: one communicator each. `device` as above.
std::vector<std::unique_ptr<Communicator>> make_local_world(
    int size, const Knobs& knobs = {}, const std::shared_ptr<DeviceRuntime>& device = nullptr);

}  // namespace horon
