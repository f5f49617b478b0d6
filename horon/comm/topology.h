#pragma once

#include <span>
#include <string>
#include <vector>

namespace horon {

// Which ranks share a host. Ranks of a host are numbered by rank (local_rank); hosts by their first
// rank (cross_rank). A value.
//   const Topology here = make_topology(2, std::vector<std::string>{"a", "a", "b", "b"});
//   here.local_rank == 0, here.cross_rank == 1, here.hosts == {{0, 1}, {2, 3}}
struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  std::vector<std::vector<int>> hosts;  // ranks of each host
  bool is_one_host() const { return hosts.size() <= 1; }
  int host_of(int rank) const;
};

// Pure: host_ids[r] names the host of rank r.
Topology make_topology(int rank, std::span<const std::string> host_ids);

// Boot id, the inodes of the network and mount namespaces, and the launcher's agent that started us
// (if any): two namespaces of one machine are two hosts, and so are two machines with the same
// name.
std::string host_identity(const std::string& agent_id = "");

}  // namespace horon
