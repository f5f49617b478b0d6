#pragma once

#include <string>
#include <string_view>
#include <vector>

// Hosts and the number of ranks on each. Pure.
namespace horon::launch {

// A host of -H or a host file.
struct Host {
  std::string name;  // as given: host, address or user@host
  int slots = 1;
  bool operator==(const Host&) const = default;
};

// Parses "a:2,b:4" or "[fe80::1]:2"; blanks around commas are allowed, slots default to 1.
// UsageError with the column for everything else, in particular anything that ssh could take for an
// option or a shell for a command.
std::vector<Host> parse_hosts(std::string_view text);

// One host per line, "host slots=4" or "host:4"; # starts a comment. `path` is for messages.
std::vector<Host> parse_hostfile(std::string_view text, std::string_view path);

// The numbers of one rank. Ranks are consecutive: all of the first host, then all of the second.
struct RankPlacement {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;  // number of its host among those with ranks
  int cross_size = 1;
};

// Fills the hosts in order and removes hosts without ranks from `hosts`. UsageError if there are
// not enough slots.
std::vector<RankPlacement> assign_ranks(std::vector<Host>& hosts, int ranks);

// The cores of rank `index` of `count`: an even, contiguous range; empty (all) if there are more
// ranks than cores.
std::vector<int> cores_of_rank(const std::vector<int>& cores, int index, int count);

}  // namespace horon::launch
