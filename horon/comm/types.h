#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/time.h"
#include "horon/device/buffer.h"

namespace horon {

// The kind of an operation.
enum class OpKind : uint8_t {
  kBarrier,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kGroup,    // several of the above with one agreement
  kJoin,     // "I have nothing more to contribute"
  kDeviate,  // "I cannot do what was planned": nobody moves anything
};

// How elements are combined. kAverage divides by the number of contributing ranks (exact sums: by
// the shards).
enum class ReduceOp : uint8_t { kSum, kAverage, kMin, kMax, kProduct };

// kFast: the same bits from run to run on the same ranks. kExact: the same bits on any number of
// ranks (sum and average of f32 and f64; other types and operations are always exact, f16/bf16 are
// refused).
enum class Reduction : uint8_t { kFast, kExact };

std::string_view name_of(OpKind kind);
std::string_view name_of(ReduceOp op);
ReduceOp parse_reduce_op(std::string_view name);  // throws UsageError listing the names

// For unlimited waits; a deadline this far away does not overflow.
constexpr Milliseconds kNoLimit = std::chrono::hours(24 * 365);

// Options that every operation takes.
struct OpOptions {
  std::string name = {};    // shown in errors and compared between ranks; may be empty
  Milliseconds timeout{0};  // longest time without progress; 0: the communicator's
};

// Options of all_reduce and reduce_scatter.
struct ReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  Reduction reduction = Reduction::kFast;
  std::string name = {};
  Milliseconds timeout{0};
};

// The result of all_gather when sizes are not known in advance.
struct Gathered {
  OwnedBuffer data;
  std::vector<uint64_t> counts;  // one per rank
};

}  // namespace horon
