#include "horon/comm/engine/header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {
namespace {

// Names that differ only beyond what a header has room for are told apart by their hash.
std::string short_name(const Header& header) {
  const size_t length = strnlen(header.name, sizeof(header.name));
  const std::string name(header.name, length);
  const bool cut = length == sizeof(header.name) - 1;
  return cut ? fmt::format("{}... ({:x})", name, header.name_hash & 0xffff) : name;
}

bool reduces(OpKind kind) { return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter; }

// Two ranks that do the same thing, sizes that may differ aside.
bool same_request(const Header& a, const Header& b) {
  const bool equal_counts = a.kind != OpKind::kAllGather && a.kind != OpKind::kAllToAll;
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.reduction == b.reduction &&
         a.root == b.root && a.layout == b.layout && a.name_hash == b.name_hash &&
         a.items == b.items && a.policy == b.policy && a.on_device == b.on_device &&
         (!equal_counts || a.count == b.count);
}

// "all_reduce: ranks requested different operations: ranks 0, 1: ...; rank 2: ..."
std::string list_requests(std::span<const Header> headers, std::span<const int> active,
                          std::span<const int> ranks) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (int member : active) {
    const std::string text = describe(headers[member]);
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto& group) { return group.first == text; });
    if (found == groups.end()) {
      groups.push_back({text, {ranks[member]}});
    } else {
      found->second.push_back(ranks[member]);
    }
  }
  std::vector<std::string> lines;
  for (const auto& [text, who] : groups)
    lines.push_back(fmt::format("{}: {}", name_ranks(who), text));
  return fmt::format("{}", fmt::join(lines, "; "));
}

// all_gather: every output must hold exactly what all bring together.
std::string check_gather_room(std::span<const Header> headers, std::span<const int> active,
                              std::span<const int> ranks) {
  uint64_t total = 0;
  for (int member : active) total += headers[member].count;
  for (int member : active) {
    const Header& header = headers[member];
    if (header.out_count != kAnyCount && header.out_count != total) {
      return fmt::format(
          "all_gather: the ranks bring {} elements together, rank {} has room for {}", total,
          ranks[member], header.out_count);
    }
  }
  return "";
}

}  // namespace

void set_name(Header& header, const std::string& name) {
  header.name_hash = name.empty() ? 0 : hash_text(name);
  std::memset(header.name, 0, sizeof(header.name));
  std::memcpy(header.name, name.data(), std::min(name.size(), sizeof(header.name) - 1));
}

std::string describe(const Header& header) {
  std::string text(name_of(header.kind));
  const bool moves = header.kind != OpKind::kBarrier && header.kind != OpKind::kJoin &&
                     header.kind != OpKind::kDeviate;
  if (reduces(header.kind)) text += fmt::format(" {}", name_of(header.op));
  if (header.kind == OpKind::kGroup) {
    text += fmt::format(" of {} operations", header.items);
  } else if (moves) {
    const bool known = static_cast<size_t>(header.dtype) < kDTypeCount;
    text += fmt::format(" {}[{}]", known ? name_of(header.dtype) : "?", header.count);
  }
  if (header.on_device != 0) text += " on the device";
  if (header.reduction == Reduction::kExact) text += " exact";
  if (header.reduction == Reduction::kExact && header.layout != 0)
    text += fmt::format(" over {} shards", header.layout);
  if (header.kind == OpKind::kBroadcast) text += fmt::format(" from root {}", header.root);
  if (header.kind == OpKind::kReduceScatter)
    text += fmt::format(" (split {:x})", header.layout & 0xffff);
  const std::string name = short_name(header);
  if (!name.empty()) text += fmt::format(" '{}'", name);
  return text;
}

HeaderVerdict agree(std::span<const Header> headers, std::span<const int> ranks) {
  HeaderVerdict verdict;
  for (size_t i = 0; i < headers.size(); ++i) {
    if (headers[i].kind != OpKind::kJoin) verdict.active.push_back(static_cast<int>(i));
  }
  if (verdict.active.empty()) return verdict;
  for (int member : verdict.active) {
    if (headers[member].is_invalid == 0) continue;
    verdict.mismatch = fmt::format(
        "rank {} made an invalid call: {}: {}", ranks[member], name_of(headers[member].kind),
        std::string(headers[member].name, strnlen(headers[member].name, sizeof(Header::name))));
    return verdict;
  }
  const Header& first = headers[verdict.active.front()];
  const bool same = std::all_of(verdict.active.begin(), verdict.active.end(),
                                [&](int member) { return same_request(first, headers[member]); });
  const bool same_policy =
      std::all_of(verdict.active.begin(), verdict.active.end(),
                  [&](int member) { return headers[member].policy == first.policy; });
  if (!same_policy) {
    verdict.mismatch =
        "ranks have different algorithms to choose from: make the settings 'backend', 'algorithm' "
        "and 'inline_bytes' the same on all, and install the same parts";
  } else if (!same) {
    verdict.mismatch =
        "ranks requested different operations: " + list_requests(headers, verdict.active, ranks) +
        "; make every rank call the same, in the same order";
  } else if (first.kind == OpKind::kAllGather) {
    verdict.mismatch = check_gather_room(headers, verdict.active, ranks);
  } else if (first.kind == OpKind::kBroadcast && headers[first.root].kind == OpKind::kJoin) {
    verdict.mismatch = fmt::format("{}: the root, rank {}, has joined and sends nothing",
                                   describe(first), ranks[first.root]);
  }
  return verdict;
}

HeaderDigest digest_of(const Header& header, int member) {
  using enum OpKind;
  const bool differs = header.kind == kAllGather || header.kind == kAllToAll ||
                       header.kind == kGroup || header.kind == kJoin || header.kind == kDeviate;
  const bool brings = header.is_inline != 0 || header.blob_bytes != 0 || header.is_invalid != 0;
  const std::array<uint64_t, 12> equal = {static_cast<uint64_t>(header.kind),
                                          static_cast<uint64_t>(header.dtype),
                                          static_cast<uint64_t>(header.op),
                                          static_cast<uint64_t>(header.reduction),
                                          static_cast<uint64_t>(header.root),
                                          header.count,
                                          header.layout,
                                          header.items,
                                          header.name_hash,
                                          header.policy,
                                          header.on_device,
                                          header.is_inline};
  const bool is_exact = header.reduction == Reduction::kExact;
  return {hash_bytes(equal.data(), sizeof(equal)), differs || brings || is_exact ? 1U : 0U,
          header.away_us, header.away_us, member};
}

void combine(HeaderDigest& to, const HeaderDigest& other) {
  if (to.fingerprint != other.fingerprint || other.needs_headers != 0) to.needs_headers = 1;
  to.fingerprint = std::min(to.fingerprint, other.fingerprint);
  to.least_away_us = std::min(to.least_away_us, other.least_away_us);
  const bool is_slower =
      std::pair(other.most_away_us, other.slowest) > std::pair(to.most_away_us, to.slowest);
  if (!is_slower) return;
  to.most_away_us = other.most_away_us;
  to.slowest = other.slowest;
}

void fill_headers(std::span<Header> headers, const Header& mine, const HeaderDigest& all) {
  Header one = mine;
  one.address = one.out_address = kNoAddress;
  one.away_us = all.least_away_us;
  std::fill(headers.begin(), headers.end(), one);
  const auto slowest = static_cast<size_t>(all.slowest);
  if (slowest < headers.size()) headers[slowest].away_us = all.most_away_us;
}

std::string check_all_to_all(const std::vector<std::vector<uint64_t>>& sends,
                             const std::vector<std::vector<uint64_t>>& receives,
                             std::span<const int> active, std::span<const int> ranks) {
  for (int to : active) {
    for (size_t from = 0; from < receives[to].size(); ++from) {
      const bool joined =
          std::find(active.begin(), active.end(), static_cast<int>(from)) == active.end();
      if (joined && receives[to][from] != 0) {
        return fmt::format("all_to_all: rank {} expects {} elements from rank {}, which has joined",
                           ranks[to], receives[to][from], ranks[from]);
      }
    }
  }
  for (int from : active) {
    for (int to : active) {
      if (receives[to].empty()) continue;  // takes what comes
      if (sends[from][to] != receives[to][from]) {
        return fmt::format("all_to_all: rank {} sends {} elements to rank {}, which expects {}",
                           ranks[from], sends[from][to], ranks[to], receives[to][from]);
      }
    }
  }
  return "";
}

}  // namespace horon
