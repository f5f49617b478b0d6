#include "horon/comm/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "horon/base/error.h"

namespace horon {
namespace {

constexpr std::array<std::string_view, 9> kKinds = {"barrier",    "all_reduce", "reduce_scatter",
                                                    "all_gather", "broadcast",  "all_to_all",
                                                    "group",      "join",       "agreement"};
constexpr std::array<std::string_view, 5> kOps = {"sum", "average", "min", "max", "product"};

}  // namespace

// Headers come from peers: an unknown number must not be an out-of-range read.
std::string_view name_of(OpKind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < kKinds.size() ? kKinds[index] : "unknown";
}
std::string_view name_of(ReduceOp op) {
  const auto index = static_cast<size_t>(op);
  return index < kOps.size() ? kOps[index] : "unknown";
}

ReduceOp parse_reduce_op(std::string_view name) {
  for (size_t i = 0; i < kOps.size(); ++i) {
    if (kOps[i] == name) return static_cast<ReduceOp>(i);
  }
  throw UsageError(
      fmt::format("unknown reduce operation '{}'; one of {}", name, fmt::join(kOps, ", ")));
}

}  // namespace horon
