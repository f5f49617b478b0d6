#include "horon/comm/algorithm.h"

#include <fmt/format.h>

#include <array>

#include "horon/base/text.h"

namespace horon {
namespace {

constexpr std::array<std::string_view, kAlgorithmCount> kNames = {
    "inline", "in_place", "windows",   "one_shot", "two_shot",
    "tree",   "scatter",  "two_level", "flat",     "native"};

std::string operation_of(const AlgorithmRow& row) {
  return fmt::format("{}{}", name_of(row.kind), row.reduction == Reduction::kExact ? " exact" : "");
}

}  // namespace

std::string_view name_of(Algorithm algorithm) { return kNames.at(static_cast<size_t>(algorithm)); }

std::string override_of(const AlgorithmRow& row) {
  return fmt::format("{}={}", name_of(row.kind), name_of(row.algorithm));
}

std::string print_algorithms(std::span<const Published> all) {
  constexpr std::string_view kLine = "  {:<17} {:<7} {:>6} {:>8}  {:<10} {}\n";
  const auto line = [&](const auto&... cells) {
    std::string text = fmt::format(fmt::runtime(kLine), cells...);
    text.erase(text.find_last_not_of(" \n") + 1);
    return text + "\n";
  };
  std::string text = line("operation", "device", "ranks", "up to", "algorithm", "only");
  for (const Published& one : all) {
    text += one.backends + (one.remark.empty() ? "" : fmt::format(" ({})", one.remark)) + "\n";
    for (const AlgorithmRow& row : one.rows) {
      text += line(operation_of(row), row.device == DeviceKind::kCpu ? "cpu" : "cuda",
                   row.most_ranks == kAnyRanks ? "any" : fmt::format("<= {}", row.most_ranks),
                   row.most_bytes == kAnyBytes ? "any" : format_bytes(row.most_bytes),
                   name_of(row.algorithm), row.only == nullptr ? "" : row.only->words);
    }
  }
  return text +
         "The first matching row of a backend is used. Device memory without a row of its own is "
         "staged through the host.\n--algorithm or HORON_ALGORITHM overrides the choice, e.g. "
         "all_reduce=two_shot,broadcast=tree; it ignores 'ranks' and 'up to' but not 'only'.\n";
}

}  // namespace horon
