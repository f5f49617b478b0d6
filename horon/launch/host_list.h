#pragma once

#include <string>
#include <string_view>
#include <vector>

// Who runs how many ranks. Pure.
namespace horon::launch {

struct Host {
  std::string name;  // as given: host, address or user@host
  int slots = 1;
  bool operator==(const Host&) const = default;
};

// "a:2,b:4", "[fe80::1]:2", blanks around commas allowed; slots default to 1. UsageError with the
// column for everything else: nothing that ssh could take for an option or a shell for a command
// gets through.
std::vector<Host> parse_hosts(std::string_view text);

// One host a line, "host slots=4" or "host:4"; # starts a comment. `path` is for messages.
std::vector<Host> parse_hostfile(std::string_view text, std::string_view path);

// Where one rank runs. Ranks are dense: all of the first host, then all of the second.
struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;  // number of its host among those that run ranks
  int cross_size = 1;
};

// Fills the hosts in their order; those left without a rank are dropped from `hosts`. UsageError if
// there are not enough slots.
std::vector<Place> place_ranks(std::vector<Host>& hosts, int ranks);

// The cores of rank `index` of `count`: an even, contiguous share; empty (all) if there are more
// ranks than cores.
std::vector<int> share_of_cores(const std::vector<int>& cores, int index, int count);

}  // namespace horon::launch
