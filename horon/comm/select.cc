#include "horon/comm/select.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon {
namespace {

constexpr std::array<std::string_view, 10> kNames = {"default",  "inline", "in_place", "one_shot",
                                                     "two_shot", "tree",   "scatter",  "two_level",
                                                     "flat",     "native"};

constexpr uint64_t kAnyBytes = std::numeric_limits<uint64_t>::max();
constexpr int kAnyRanks = std::numeric_limits<int>::max();
constexpr std::string_view kShared = "self local shm";
constexpr std::string_view kMessages = "gloo mpi";

// Reducing in place costs a second meeting and saves the copy: measured, it pays from here on.
constexpr uint64_t kInlineReachable = 8U << 10;

struct Rule {
  std::string_view backends;
  OpKind kind;
  std::string_view device;  // "cpu", "cuda", "any"
  int max_ranks;
  uint64_t max_bytes;
  Algorithm algorithm;
};

// The first rule that fits is taken. Small messages go with their headers before it comes to this
// table: up to inline_bytes over shared memory, up to 384 bytes over messages and hier.
constexpr std::array<Rule, 9> kRules = {{
    {"nccl", OpKind::kAllReduce, "cuda", kAnyRanks, kAnyBytes, Algorithm::kNative},
    {kShared, OpKind::kAllReduce, "any", kAnyRanks, kAnyBytes, Algorithm::kInPlace},
    {kMessages, OpKind::kAllReduce, "any", 8, 16U << 10, Algorithm::kOneShot},
    {kMessages, OpKind::kAllReduce, "any", kAnyRanks, kAnyBytes, Algorithm::kTwoShot},
    {kMessages, OpKind::kBroadcast, "any", kAnyRanks, 64U << 10, Algorithm::kTree},
    {kMessages, OpKind::kBroadcast, "any", kAnyRanks, kAnyBytes, Algorithm::kScatter},
    {"hier", OpKind::kAllReduce, "any", kAnyRanks, 16U << 10, Algorithm::kFlat},
    {"hier", OpKind::kAllReduce, "any", kAnyRanks, kAnyBytes, Algorithm::kTwoLevel},
    {"hier", OpKind::kBroadcast, "any", kAnyRanks, kAnyBytes, Algorithm::kTwoLevel},
}};

bool has_word(std::string_view words, std::string_view word) {
  for (const std::string& one : split(words, ' ')) {
    if (one == word) return true;
  }
  return false;
}

// "hier(shm+gloo)" is "hier".
std::string_view family(std::string_view backend) { return backend.substr(0, backend.find('(')); }

bool fits(const Rule& rule, const Situation& situation) {
  const std::string_view device = situation.device == DeviceKind::kCpu ? "cpu" : "cuda";
  return rule.kind == situation.kind && situation.bytes <= rule.max_bytes &&
         situation.ranks <= rule.max_ranks && (rule.device == "any" || rule.device == device) &&
         has_word(rule.backends, family(situation.backend));
}

Algorithm parse_algorithm(const std::string& name, OpKind kind) {
  std::vector<std::string> known;
  if (kind != OpKind::kAllToAll) known.emplace_back("inline");
  for (const Rule& rule : kRules) {
    if (rule.kind == kind) known.emplace_back(name_of(rule.algorithm));
  }
  for (size_t i = 0; i < kNames.size(); ++i) {
    const bool has = std::find(known.begin(), known.end(), name) != known.end();
    if (kNames[i] == name && has) return static_cast<Algorithm>(i);
  }
  throw UsageError(fmt::format("algorithm: '{}' has no '{}'; it has {}", name_of(kind), name,
                               fmt::join(known, ", ")));
}

OpKind parse_kind(const std::string& name) {
  for (OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather,
                      OpKind::kBroadcast, OpKind::kAllToAll}) {
    if (name_of(kind) == name) return kind;
  }
  throw UsageError(fmt::format("algorithm: unknown operation '{}'", name));
}

}  // namespace

std::string_view name_of(Algorithm algorithm) { return kNames.at(static_cast<size_t>(algorithm)); }

AlgorithmTable::AlgorithmTable(const std::string& override_text, size_t inline_bytes)
    : inline_bytes_(inline_bytes),
      fingerprint_(
          static_cast<uint32_t>(hash_text(fmt::format("{}|{}", override_text, inline_bytes)))) {
  for (const std::string& item : split(override_text, ',')) {
    const size_t equals = item.find('=');
    require(equals != std::string::npos,
            fmt::format("algorithm: expected operation=algorithm, got '{}'", item));
    const OpKind kind = parse_kind(item.substr(0, equals));
    overrides_.push_back({kind, parse_algorithm(item.substr(equals + 1), kind)});
  }
}

Algorithm AlgorithmTable::choose(const Situation& situation) const {
  const bool in_place = situation.reachable && situation.kind == OpKind::kAllReduce;
  const uint64_t limit =
      in_place ? std::min<uint64_t>(inline_bytes_, kInlineReachable) : inline_bytes_;
  const bool fits_inline = situation.bytes <= limit && situation.kind != OpKind::kAllToAll;
  for (const Override& one : overrides_) {
    if (one.kind != situation.kind) continue;
    const bool can_inline = situation.bytes <= inline_bytes_;
    if (one.algorithm != Algorithm::kInline || can_inline) return one.algorithm;
  }
  if (fits_inline) return Algorithm::kInline;
  for (const Rule& rule : kRules) {
    if (fits(rule, situation)) return rule.algorithm;
  }
  return Algorithm::kDefault;
}

std::string AlgorithmTable::print() {
  std::string text = fmt::format("{:<16} {:<15} {:<7} {:>6} {:>9}  {}\n", "operation", "backend",
                                 "device", "ranks", "up to", "algorithm");
  text += fmt::format("{:<16} {:<15} {:<7} {:>6} {:>9}  {}\n", "all but a2a", kShared, "any", "any",
                      "64 KB", "inline");
  text += fmt::format("{:<16} {:<15} {:<7} {:>6} {:>9}  {}\n", "  on the heap", kShared, "any",
                      "any", "8 KB", "inline (all_reduce)");
  text += fmt::format("{:<16} {:<15} {:<7} {:>6} {:>9}  {}\n", "all but a2a", "gloo mpi hier",
                      "any", "any", "384 B", "inline");
  for (const Rule& rule : kRules) {
    text += fmt::format("{:<16} {:<15} {:<7} {:>6} {:>9}  {}\n", name_of(rule.kind), rule.backends,
                        rule.device,
                        rule.max_ranks == kAnyRanks ? "any" : fmt::format("<= {}", rule.max_ranks),
                        rule.max_bytes == kAnyBytes ? "any" : format_bytes(rule.max_bytes),
                        name_of(rule.algorithm));
  }
  return text +
         "The first line that fits is taken; operations without a line have one way only.\n"
         "Override with --algorithm or HORON_ALGORITHM, e.g. all_reduce=two_shot,broadcast=tree.\n";
}

}  // namespace horon
