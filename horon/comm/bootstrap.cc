#include "horon/comm/bootstrap.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/comm/start/backends.h"
#include "horon/comm/start/meet.h"

namespace horon {
namespace {

// Each communicator of a job has its own corner of the store: a counter per rank numbers them.
std::shared_ptr<Store> corner(const BootstrapInfo& info) {
  if (!info.store) return info.size == 1 ? make_memory_store() : nullptr;
  const Deadline deadline = Deadline::after(info.job_settings.duration("start_timeout"));
  const int64_t number =
      info.store->add(fmt::format("{}/made/{}", info.name, info.rank), 1, deadline);
  return make_prefix_store(info.store, fmt::format("{}/{}/", info.name, number));
}

std::unique_ptr<Communicator> connect(const BootstrapInfo& info) {
  require(info.size >= 1 && info.rank >= 0 && info.rank < info.size,
          fmt::format("rank {} of {} makes no sense", info.rank, info.size));
  const std::string& name = info.job_settings.text("backend");
  require(info.store != nullptr || info.size == 1 || name == "mpi",
          "several ranks need a store to meet in");
  require(name != "local", "backend local is ranks as threads: use make_local_world");
  const Log log(parse_log_level(info.job_settings.text("log_level")),
                fmt::format("rank {}/{}", info.rank, info.size));
  BackendSetup setup{info.job_settings, {}, corner(info), {}, {}, info.device, log};
  setup.host = info.job_settings.text("host_id").empty()
                   ? host_identity(process_env("HORON_AGENT_ID").value_or(""))
                   : info.job_settings.text("host_id");
  const RankLocation mine{setup.host, usable_gpus(info.job_settings, info.device.get())};
  std::vector<RankLocation> locations(static_cast<size_t>(info.size), mine);
  if (setup.store && info.size > 1)
    locations = meet(info.rank, info.size, info.job_settings, *setup.store, mine);
  std::vector<std::string> hosts;
  for (const RankLocation& location : locations) {
    hosts.push_back(location.host);
    setup.gpus.push_back(location.gpus);
  }
  setup.topology = make_topology(info.rank, hosts);
  std::shared_ptr<Backend> backend = make_backend(name, setup);
  return std::make_unique<Communicator>(
      backend, std::move(setup.topology),
      Communicator::Settings{info.job_settings.duration("timeout"),
                             info.job_settings.text("algorithm"), info.device, info.on_failure,
                             setup.store});
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(const BootstrapInfo& info) {
  try {
    return connect(info);
  } catch (...) {  // the ranks will not come together
    if (info.on_failure) info.on_failure();
    throw;
  }
}

std::vector<std::unique_ptr<Communicator>> make_local_world(
    int size, const JobSettings& job_settings, const std::shared_ptr<DeviceRuntime>& device) {
  std::vector<std::unique_ptr<Communicator>> world;
  const std::vector<std::string> hosts(static_cast<size_t>(std::max(size, 1)), "here");
  int rank = 0;
  for (auto& backend : make_thread_backends(size, job_settings)) {
    world.push_back(std::make_unique<Communicator>(
        std::shared_ptr<Backend>(std::move(backend)), make_topology(rank++, hosts),
        Communicator::Settings{
            job_settings.duration("timeout"), job_settings.text("algorithm"), device, {}, {}}));
  }
  return world;
}

}  // namespace horon
