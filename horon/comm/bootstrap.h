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

// What backends publish under these settings: by this the choice is made, printed and overridden.
std::vector<Published> published_algorithms(const Knobs& knobs);
// What is wrong with the setting `algorithm` for a backend that stands there by its name; empty:
// nothing.
std::string check_algorithms(const std::string& backend, const Knobs& knobs);

// Where a rank is, as it tells the others: its host, and how many GPUs NCCL could use there (0
// without the nccl part or a device runtime).
struct Place {
  std::string host;
  int gpus = 0;
  std::string encode() const;
  static Place decode(const std::string& text);
};
// What the backend "auto" stands for, the same on every rank: self for one rank, shm on one host,
// hier on several; nccl around that if every rank can have a GPU of its own (NCCL refuses to share
// one). Pure; gpus[r] is what rank r told.
std::string auto_backend(const Topology& topology, std::span<const int> gpus);

// Makes the communicator of all ranks over the backend that info.knobs asks for. Collective. With
// nccl the device buffers of a rank are on the GPU of its number on the host (local_rank). Throws
// UsageError for an unknown name, a part that is missing, or an `algorithm` that the backend does
// not have, and, the same on all ranks (exit code 11), for settings that differ and must not
// (net/compare.h); TimeoutError naming the ranks that did not come.
std::unique_ptr<Communicator> make_communicator(const BootstrapInfo& info);

// Ranks as threads of this process: one communicator each. `device` as above.
std::vector<std::unique_ptr<Communicator>> make_local_world(
    int size, const Knobs& knobs = {}, const std::shared_ptr<DeviceRuntime>& device = nullptr);

}  // namespace horon
