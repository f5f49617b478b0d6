#include "horon/comm/bootstrap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/text.h"
#include "horon/comm/gloo/gloo_transport.h"
#include "horon/comm/hier/hier_backend.h"
#include "horon/comm/mpi/mpi_part.h"
#include "horon/comm/nccl/nccl_part.h"
#include "horon/comm/p2p/backend.h"
#include "horon/comm/p2p/channel.h"
#include "horon/comm/shared/channel.h"
#include "horon/comm/shared/local.h"
#include "horon/comm/shared/shm.h"
#include "horon/net/compare.h"

namespace horon {
namespace {

// Everything that the factories below need; made once.
struct Start {
  const BootstrapInfo& info;
  std::shared_ptr<Store> store;
  Topology topology;
  Log log;
  Place place;
  std::vector<int> gpus;  // of each rank's host
};

bool has_nccl(const Knobs& knobs) {
  try {
    Part::open("nccl", part_folders(knobs.text("parts")));
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

size_t inline_bytes(const Knobs& knobs) {
  return std::clamp<size_t>(knobs.bytes("inline_bytes"), 512, 64U << 10);
}

// Each communicator of a job has its own corner of the store: a counter per rank numbers them.
std::shared_ptr<Store> corner(const BootstrapInfo& info) {
  if (!info.store) return info.size == 1 ? make_memory_store() : nullptr;
  const Deadline deadline = Deadline::after(info.knobs.duration("start_timeout"));
  const int64_t number =
      info.store->add(fmt::format("{}/made/{}", info.name, info.rank), 1, deadline);
  return make_prefix_store(info.store, fmt::format("{}/{}/", info.name, number));
}

// Asked only where the answer matters: opening the part takes a while.
int usable_gpus(const BootstrapInfo& info) {
  const bool has_runtime = info.device && info.device->kind() == DeviceKind::kCuda;
  if (!has_runtime || info.knobs.text("backend") != "auto" || !has_nccl(info.knobs)) return 0;
  return info.device->device_count();
}

// What every rank brings: its place, and the settings that must be alike.
std::vector<std::string> exchange_cards(const BootstrapInfo& info, Store& store,
                                        const std::string& mine) {
  const Deadline deadline = Deadline::after(info.knobs.duration("start_timeout"));
  const auto key = [](int rank) { return fmt::format("card/{}", rank); };
  store.set(key(info.rank), mine, deadline);
  std::vector<std::string> keys;
  for (int rank = 0; rank < info.size; ++rank) keys.push_back(key(rank));
  try {
    return store.get_all(keys, deadline);
  } catch (const TimeoutError&) {  // who is missing is asked below
  }
  std::vector<int> missing;
  for (int rank = 0; rank < info.size; ++rank) {
    try {
      store.get(key(rank), Deadline::after(Milliseconds(0)));
    } catch (const TimeoutError&) {
      missing.push_back(rank);
    }
  }
  throw TimeoutError(
      fmt::format("start: {} did not come within {}; check that they were started, or raise "
                  "HORON_START_TIMEOUT",
                  name_ranks(missing), format_duration(info.knobs.duration("start_timeout"))),
      missing);
}

// All ranks see the same cards, and come to the same end.
std::vector<Place> meet(const BootstrapInfo& info, Store& store, const Place& place) {
  Said mine = common_settings(info.knobs);
  mine["place"] = place.encode();
  std::vector<Place> places;
  std::vector<Said> all;
  for (const std::string& card : exchange_cards(info, store, pack_said(mine))) {
    all.push_back(unpack_said(card));
    places.push_back(Place::decode(all.back()["place"]));
    all.back().erase("place");
  }
  if (const auto found = disagreements(all); !found.empty())
    throw UsageError(fmt::format("start: the ranks were given different settings:\n  {}",
                                 fmt::join(found, "\n  ")),
                     ExitCode::kMismatch);
  return places;
}

std::unique_ptr<Backend> make_shm(const Start& start, const std::string& corner_name) {
  const Knobs& knobs = start.info.knobs;
  const auto& mine = start.topology.hosts[start.topology.cross_rank];
  const auto store =
      make_prefix_store(start.store, fmt::format("{}{}/", corner_name, start.topology.cross_rank));
  return shared::make_shm_backend({.rank = start.topology.local_rank,
                                   .size = start.topology.local_size,
                                   .names = mine,
                                   .heap_bytes = knobs.bytes("heap_bytes"),
                                   .inline_bytes = inline_bytes(knobs),
                                   .spin = knobs.text("spin"),
                                   .start_timeout = knobs.duration("start_timeout")},
                                  *store, start.log);
}

std::shared_ptr<Transport> make_gloo(const Start& start) {
  return make_gloo_transport({.rank = start.info.rank,
                              .size = start.info.size,
                              .host_id = start.place.host,
                              .interface = start.info.knobs.text("interface"),
                              .one_host = start.topology.is_one_host(),
                              .start_timeout = start.info.knobs.duration("start_timeout")},
                             start.store);
}

std::shared_ptr<Transport> make_mpi(const Start& start) {
  MpiOptions options{.flavour = "",
                     .rank = start.info.rank,
                     .size = start.info.size,
                     .part_folders = part_folders(start.info.knobs.text("parts"))};
  return make_mpi_transport(options, start.store);
}

std::shared_ptr<Transport> make_cross(const Start& start) {
  const std::string& wanted = start.info.knobs.text("cross_backend");
  if (wanted == "gloo") return make_gloo(start);
  if (wanted == "mpi") return make_mpi(start);
  return mpi_flavour_of_environment().empty() ? make_gloo(start) : make_mpi(start);
}

std::unique_ptr<Backend> make_backend(const std::string& name, const Start& start) {
  const int size = start.info.size;
  if (name == "auto") return make_backend(auto_backend(start.topology, start.gpus), start);
  if (name == "self") {
    require(size == 1, fmt::format("backend self is for one rank, this job has {}", size));
    return std::move(shared::make_local_backends(
        1, {inline_bytes(start.info.knobs), start.info.knobs.text("spin")})[0]);
  }
  if (name == "shm") {
    require(start.topology.is_one_host(),
            fmt::format("backend shm is for one host, this job has {}; use hier",
                        start.topology.hosts.size()));
    return make_shm(start, "shm");
  }
  if (name == "gloo") return make_p2p_backend(make_gloo(start));
  if (name == "mpi") return make_p2p_backend(make_mpi(start));
  if (name == "hier")
    return make_hier_backend(start.topology, make_shm(start, "hier"), make_cross(start));
  if (name == "nccl") {
    return make_nccl_backend(
        make_backend(auto_backend(start.topology, {}), start),
        {start.topology.local_rank, part_folders(start.info.knobs.text("parts"))},
        start.info.device);
  }
  throw UsageError(fmt::format("backend {} cannot be made here", name));
}

std::unique_ptr<Communicator> connect(const BootstrapInfo& info) {
  require(info.size >= 1 && info.rank >= 0 && info.rank < info.size,
          fmt::format("rank {} of {} makes no sense", info.rank, info.size));
  const std::string& name = info.knobs.text("backend");
  require(info.store != nullptr || info.size == 1 || name == "mpi",
          "several ranks need a store to meet in");
  require(name != "local", "backend local is ranks as threads: use make_local_world");
  Start start{info,
              corner(info),
              {},
              Log(parse_log_level(info.knobs.text("log_level")),
                  fmt::format("rank {}/{}", info.rank, info.size)),
              {},
              {}};
  start.place.host = info.knobs.text("host_id").empty()
                         ? host_identity(process_env("HORON_AGENT_ID").value_or(""))
                         : info.knobs.text("host_id");
  start.place.gpus = usable_gpus(info);
  std::vector<Place> places(static_cast<size_t>(info.size), start.place);
  if (start.store && info.size > 1) places = meet(info, *start.store, start.place);
  std::vector<std::string> hosts;
  for (const Place& place : places) {
    hosts.push_back(place.host);
    start.gpus.push_back(place.gpus);
  }
  start.topology = make_topology(info.rank, hosts);
  std::shared_ptr<Backend> backend = make_backend(name, start);
  return std::make_unique<Communicator>(
      backend, std::move(start.topology),
      Communicator::Settings{info.knobs.duration("timeout"), info.knobs.text("algorithm"),
                             info.device, info.on_failure, start.store});
}

}  // namespace

std::vector<std::string> backend_names() { return knob_words("backend"); }

std::vector<Published> published_algorithms(const Knobs& knobs) {
  return {{"self, local, shm", "", shared::SharedChannel::algorithms(inline_bytes(knobs))},
          {"gloo, mpi", "", P2pChannel::algorithms()},
          {"hier", "", hier_algorithms()},
          {"nccl",
           has_nccl(knobs) ? "besides those of the backend that it is around"
                           : "absent: `horon info` says why",
           nccl_algorithms()}};
}

std::string check_algorithms(const std::string& backend, const Knobs& knobs) {
  if (knobs.text("algorithm").empty()) return "";
  for (Published& one : published_algorithms(knobs)) {
    const auto names = split(one.backends, ',');
    if (std::find(names.begin(), names.end(), backend) == names.end()) continue;
    try {
      const AlgorithmTable table(std::move(one.rows), backend, knobs.text("algorithm"));
    } catch (const UsageError& error) {
      return error.what();
    }
  }
  return "";
}

// Hosts without such a GPU tell their name alone.
std::string Place::encode() const { return gpus == 0 ? host : fmt::format("{}\n{}", host, gpus); }

Place Place::decode(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return {text, 0};
  const int64_t gpus = parse_integer(text.substr(end + 1), "GPUs of a host", 0, 1 << 20);
  return {text.substr(0, end), static_cast<int>(gpus)};
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

std::unique_ptr<Communicator> make_communicator(const BootstrapInfo& info) {
  try {
    return connect(info);
  } catch (...) {  // the ranks will not come together
    if (info.on_failure) info.on_failure();
    throw;
  }
}

std::vector<std::unique_ptr<Communicator>> make_local_world(
    int size, const Knobs& knobs, const std::shared_ptr<DeviceRuntime>& device) {
  std::vector<std::unique_ptr<Communicator>> world;
  const std::vector<std::string> hosts(static_cast<size_t>(std::max(size, 1)), "here");
  int rank = 0;
  for (auto& backend :
       shared::make_local_backends(size, {inline_bytes(knobs), knobs.text("spin")})) {
    world.push_back(std::make_unique<Communicator>(
        std::shared_ptr<Backend>(std::move(backend)), make_topology(rank++, hosts),
        Communicator::Settings{
            knobs.duration("timeout"), knobs.text("algorithm"), device, {}, {}}));
  }
  return world;
}

}  // namespace horon
