#include "horon/launch/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon::launch {
namespace {

constexpr int kMaxSlots = 4096;

bool is_word(std::string_view text, std::string_view extra) {
  return !text.empty() && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [&](unsigned char c) {
           return (c < 0x80 && std::isalnum(c) != 0) ||
                  extra.find(static_cast<char>(c)) != extra.npos;
         });
}

std::string check_name(std::string_view name, bool bracketed, const std::string& where) {
  std::string_view host = name;
  const size_t at = name.find('@');
  if (at != std::string_view::npos) {
    require(is_word(name.substr(0, at), "_.-"),
            fmt::format("{}: '{}' has an invalid user name before @", where, name));
    host = name.substr(at + 1);
  }
  require(is_word(host, bracketed ? ":.%-_" : "._-") && host.size() <= 253,
          fmt::format("{}: '{}' is not a host name or address", where, name));
  return std::string(name);
}

int check_slots(std::string_view text, const std::string& where) {
  int64_t slots = 0;
  try {
    slots = parse_integer(text, "slots", 1, 65535);
  } catch (const UsageError&) {
    throw UsageError(fmt::format("{}: '{}' is not a number of slots (host:slots)", where, text));
  }
  require(
      slots <= kMaxSlots,
      fmt::format("{}: {} slots on one host? -H takes host:slots, not host:port", where, slots));
  return static_cast<int>(slots);
}

Host parse_host(std::string_view text, const std::string& where) {
  const bool bracketed = text.starts_with('[');
  std::string_view name = text;
  std::string_view slots = "1";
  if (bracketed) {
    const size_t close = text.find(']');
    require(close != text.npos, fmt::format("{}: '{}' has no ]", where, text));
    name = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    require(rest.empty() || rest.front() == ':',
            fmt::format("{}: '{}' is not [address]:slots", where, text));
    if (!rest.empty()) slots = rest.substr(1);
  } else if (const size_t colon = text.find(':'); colon != text.npos) {
    require(text.find(':', colon + 1) == text.npos,
            fmt::format("{}: '{}': an IPv6 address needs brackets, [address]:slots", where, text));
    name = text.substr(0, colon);
    slots = text.substr(colon + 1);
  }
  return {check_name(name, bracketed, where), check_slots(slots, where)};
}

void check_distinct(const std::vector<Host>& hosts, std::string_view what) {
  std::set<std::string> seen;
  for (const Host& host : hosts) {
    require(seen.insert(host.name).second,
            fmt::format("{}: host '{}' is given twice; add its slots up", what, host.name));
  }
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  size_t start = 0;
  while (start <= text.size()) {
    const size_t comma = std::min(text.find(',', start), text.size());
    const std::string_view piece = text.substr(start, comma - start);
    const size_t lead = piece.size() - std::min(piece.find_first_not_of(" \t"), piece.size());
    const std::string where = fmt::format("-H, column {}", start + piece.size() - lead + 1);
    require(!trim(piece).empty(), where + ": a host is missing");
    hosts.push_back(parse_host(trim(piece), where));
    start = comma + 1;
  }
  check_distinct(hosts, "-H");
  return hosts;
}

std::vector<Host> parse_hostfile(std::string_view text, std::string_view path) {
  std::vector<Host> hosts;
  int number = 0;
  for (size_t start = 0; start < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', start), text.size());
    std::string_view line = text.substr(start, end - start);
    start = end + 1;
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", path, number + 1);
    const size_t space = std::min(line.find_first_of(" \t"), line.size());
    const std::string_view first = line.substr(0, space);
    const std::string_view rest = trim(line.substr(space));
    const auto colons = std::count(first.begin(), first.end(), ':');
    const bool is_address = colons > 1 && first.front() != '[';
    Host host = is_address ? Host{check_name(first, true, where), 1} : parse_host(first, where);
    if (!rest.empty()) {
      const bool has_slots = !is_address && colons > 0 && !first.ends_with(']');
      require(rest.starts_with("slots=") && !has_slots,
              fmt::format("{}: expected 'host slots=n' or 'host:n', got '{}'", where, line));
      host.slots = check_slots(trim(rest.substr(6)), where);
    }
    hosts.push_back(std::move(host));
  }
  require(!hosts.empty(), fmt::format("{}: no hosts in it", path));
  check_distinct(hosts, path);
  return hosts;
}

std::vector<RankPlacement> assign_ranks(std::vector<Host>& hosts, int ranks) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  require(ranks >= 1, fmt::format("-np {}: at least one rank is needed", ranks));
  require(ranks <= slots, fmt::format("-np {}: the {} host(s) have {} slot(s) together", ranks,
                                      hosts.size(), slots));
  std::vector<RankPlacement> placements;
  int host_number = 0;
  for (const Host& host : hosts) {
    const int here = std::min(host.slots, ranks - static_cast<int>(placements.size()));
    if (here == 0) break;
    for (int local = 0; local < here; ++local) {
      placements.push_back({.rank = static_cast<int>(placements.size()),
                            .size = ranks,
                            .local_rank = local,
                            .local_size = here,
                            .cross_rank = host_number});
    }
    ++host_number;
  }
  for (RankPlacement& placement : placements) placement.cross_size = host_number;
  hosts.resize(static_cast<size_t>(host_number));
  return placements;
}

std::vector<int> cores_of_rank(const std::vector<int>& cores, int index, int count) {
  const auto all = static_cast<int>(cores.size());
  if (count > all) return {};
  return {cores.begin() + index * all / count, cores.begin() + (index + 1) * all / count};
}

}  // namespace horon::launch
