#include "horon/comm/topology.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>

namespace horon {

int Topology::host_of(int which) const {
  for (size_t host = 0; host < hosts.size(); ++host) {
    if (std::find(hosts[host].begin(), hosts[host].end(), which) != hosts[host].end()) {
      return static_cast<int>(host);
    }
  }
  return -1;
}

Topology make_topology(int rank, std::span<const std::string> host_ids) {
  Topology topology;
  topology.rank = rank;
  topology.size = static_cast<int>(host_ids.size());
  std::map<std::string, size_t> index;
  for (int r = 0; r < topology.size; ++r) {
    const auto [place, is_new] = index.emplace(host_ids[r], topology.hosts.size());
    if (is_new) topology.hosts.emplace_back();
    topology.hosts[place->second].push_back(r);
  }
  topology.cross_rank = topology.host_of(rank);
  topology.cross_size = static_cast<int>(topology.hosts.size());
  const auto& mine = topology.hosts[topology.cross_rank];
  topology.local_rank = static_cast<int>(std::find(mine.begin(), mine.end(), rank) - mine.begin());
  topology.local_size = static_cast<int>(mine.size());
  return topology;
}

std::string host_identity(const std::string& agent_id) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  for (const char* space : {"net", "mnt"}) {
    struct stat info {};
    const std::string path = fmt::format("/proc/self/ns/{}", space);
    boot += fmt::format("-{}", stat(path.c_str(), &info) == 0 ? info.st_ino : 0);
  }
  return agent_id.empty() ? boot : boot + "-" + agent_id;
}

}  // namespace horon
