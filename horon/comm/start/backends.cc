#include "horon/comm/start/backends.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/text.h"
#include "horon/comm/engine/select.h"
#include "horon/comm/gloo/gloo_part.h"
#include "horon/comm/hier/hier_backend.h"
#include "horon/comm/mpi/mpi_part.h"
#include "horon/comm/nccl/nccl_part.h"
#include "horon/comm/p2p/backend.h"
#include "horon/comm/p2p/channel.h"
#include "horon/comm/shared/channel.h"
#include "horon/comm/shared/local.h"
#include "horon/comm/shared/shared_region.h"
#include "horon/comm/shared/shm.h"
#include "horon/comm/tcp/tcp_transport.h"

namespace horon {
namespace {

bool has_nccl(const JobSettings& job_settings) {
  try {
    Part::open("nccl", part_folders(job_settings.text("parts")));
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

size_t inline_bytes(const JobSettings& job_settings) {
  return std::clamp<size_t>(job_settings.bytes("inline_bytes"), 512, 64U << 10);
}

std::unique_ptr<Backend> make_shm(const BackendSetup& setup, const std::string& corner_name) {
  const JobSettings& job_settings = setup.job_settings;
  const auto& mine = setup.topology.hosts[setup.topology.cross_rank];
  const auto store =
      make_prefix_store(setup.store, fmt::format("{}{}/", corner_name, setup.topology.cross_rank));
  return shared::make_shm_backend({.rank = setup.topology.local_rank,
                                   .size = setup.topology.local_size,
                                   .names = mine,
                                   .heap_bytes = job_settings.bytes("heap_bytes"),
                                   .inline_bytes = inline_bytes(job_settings),
                                   .spin = job_settings.text("spin"),
                                   .start_timeout = job_settings.duration("start_timeout")},
                                  *store, setup.log);
}

// `carrier` brings bytes to other hosts without encryption: refused if encryption was asked for,
// else said once.
void tell_plain(const BackendSetup& setup, const std::string& carrier) {
  const JobSettings& settings = setup.job_settings;
  if (setup.topology.is_one_host() || settings.text("wire") == "plain") return;
  require(settings.origin("wire") == "default",
          fmt::format("--wire private: {} does not encrypt what it sends to other hosts; use tcp "
                      "(--cross-backend tcp), or --wire plain if nobody else can read the network",
                      carrier));
  if (setup.topology.rank == 0)
    setup.log.warn(
        "{} does not encrypt what it sends to other hosts (tcp does; --wire plain "
        "silences this warning)",
        carrier);
}

std::shared_ptr<Transport> make_gloo(const BackendSetup& setup) {
  tell_plain(setup, "gloo");
  return make_gloo_transport({.rank = setup.topology.rank,
                              .size = setup.topology.size,
                              .host_id = setup.host,
                              .interface = setup.job_settings.text("interface"),
                              .one_host = setup.topology.is_one_host(),
                              .start_timeout = setup.job_settings.duration("start_timeout"),
                              .part_folders = part_folders(setup.job_settings.text("parts"))},
                             setup.store);
}

std::shared_ptr<Transport> make_tcp(const BackendSetup& setup) {
  const JobSettings& job_settings = setup.job_settings;
  return make_tcp_transport(
      {.rank = setup.topology.rank,
       .size = setup.topology.size,
       .host_id = setup.host,
       .interface = job_settings.text("interface"),
       .one_host = setup.topology.is_one_host(),
       .start_timeout = job_settings.duration("start_timeout"),
       .is_private = job_settings.text("wire") != "plain",
       .key_bytes = job_settings.bytes("wire_key_bytes"),
       .sockets = static_cast<int>(job_settings.integer("tcp_sockets")),
       .congestion = job_settings.text("tcp_congestion"),
       .spin = shared::spin_time(job_settings.text("spin"), setup.topology.local_size)},
      setup.store, setup.log);
}

std::shared_ptr<Transport> make_mpi(const BackendSetup& setup) {
  tell_plain(setup, "mpi");
  MpiOptions options{.flavour = "",
                     .rank = setup.topology.rank,
                     .size = setup.topology.size,
                     .part_folders = part_folders(setup.job_settings.text("parts"))};
  return make_mpi_transport(options, setup.store);
}

std::shared_ptr<Transport> make_cross(const BackendSetup& setup) {
  const std::string& wanted = setup.job_settings.text("cross_backend");
  if (wanted == "tcp") return make_tcp(setup);
  if (wanted == "gloo") return make_gloo(setup);
  if (wanted == "mpi") return make_mpi(setup);
  return mpi_flavour_of_environment().empty() ? make_tcp(setup) : make_mpi(setup);
}

}  // namespace

std::vector<std::string> backend_names() { return job_setting_words("backend"); }

std::vector<Published> published_algorithms(const JobSettings& job_settings) {
  return {{"self, local, shm", "", shared::SharedChannel::algorithms(inline_bytes(job_settings))},
          {"tcp", "", P2pChannel::algorithms(true)},
          {"gloo, mpi", "", P2pChannel::algorithms(false)},
          {"hier", "", hier_algorithms()},
          {"nccl",
           has_nccl(job_settings) ? "in addition to those of the wrapped backend"
                                  : "absent: `horon info` says why",
           nccl_algorithms()}};
}

std::string check_algorithms(const std::string& backend, const JobSettings& job_settings) {
  if (job_settings.text("algorithm").empty()) return "";
  for (Published& one : published_algorithms(job_settings)) {
    const auto names = split(one.backends, ',');
    if (std::find(names.begin(), names.end(), backend) == names.end()) continue;
    try {
      const AlgorithmTable table(std::move(one.rows), backend, job_settings.text("algorithm"));
    } catch (const UsageError& error) {
      return error.what();
    }
  }
  return "";
}

// Asked only where the answer matters: opening the part takes a while.
int usable_gpus(const JobSettings& job_settings, const DeviceRuntime* device) {
  const bool has_runtime = device != nullptr && device->kind() == DeviceKind::kCuda;
  if (!has_runtime || job_settings.text("backend") != "auto" || !has_nccl(job_settings)) return 0;
  return device->device_count();
}

std::string auto_backend(const Topology& topology, std::span<const int> gpus) {
  const auto has_own = [&](int rank) {
    return gpus[rank] >= static_cast<int>(topology.hosts[topology.host_of(rank)].size());
  };
  bool all_have = !gpus.empty();
  for (int rank = 0; rank < topology.size && all_have; ++rank) all_have = has_own(rank);
  if (all_have) return "nccl";
  if (topology.size == 1) return "self";
  return topology.is_one_host() ? "shm" : "hier";
}

std::unique_ptr<Backend> make_backend(const std::string& name, const BackendSetup& setup) {
  const int size = setup.topology.size;
  if (name == "auto") return make_backend(auto_backend(setup.topology, setup.gpus), setup);
  if (name == "self") {
    require(size == 1, fmt::format("backend self is for one rank, this job has {}", size));
    return std::move(make_thread_backends(1, setup.job_settings)[0]);
  }
  if (name == "shm") {
    require(setup.topology.is_one_host(),
            fmt::format("backend shm is for one host, this job has {}; use hier",
                        setup.topology.hosts.size()));
    return make_shm(setup, "shm");
  }
  if (name == "tcp") return make_p2p_backend(make_tcp(setup));
  if (name == "gloo") return make_p2p_backend(make_gloo(setup));
  if (name == "mpi") return make_p2p_backend(make_mpi(setup));
  if (name == "hier")
    return make_hier_backend(setup.topology, make_shm(setup, "hier"), make_cross(setup));
  if (name == "nccl") {
    tell_plain(setup, "nccl");
    return make_nccl_backend(
        make_backend(auto_backend(setup.topology, {}), setup),
        {setup.topology.local_rank, part_folders(setup.job_settings.text("parts"))}, setup.device);
  }
  throw UsageError(fmt::format("backend {} cannot be made here", name));
}

std::vector<std::unique_ptr<Backend>> make_thread_backends(int size,
                                                           const JobSettings& job_settings) {
  return shared::make_local_backends(size, {inline_bytes(job_settings), job_settings.text("spin")});
}

}  // namespace horon
