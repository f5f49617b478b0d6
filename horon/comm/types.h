#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/time.h"
#include "horon/device/buffer.h"

namespace horon {

enum class OpKind : uint8_t {
  kBarrier,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kAllToAll,
  kGroup,    // several of the above under one agreement
  kJoin,     // "I have nothing more to contribute"
  kDeviate,  // "I cannot do what was planned": nobody moves anything
};

enum class ReduceOp : uint8_t { kSum, kAverage, kMin, kMax, kProduct };

// kFast: same bits from run to run on the same ranks. kExact: same bits on any number of ranks
// (sum and average of f32 and f64; other types and operations are exact anyway, f16/bf16 are
// refused).
enum class Reduction : uint8_t { kFast, kExact };

std::string_view name_of(OpKind kind);
std::string_view name_of(ReduceOp op);
ReduceOp parse_reduce_op(std::string_view name);  // throws UsageError listing the names

// For waits that may take as long as they take; deadlines that far away do not overflow.
constexpr Milliseconds kNoLimit = std::chrono::hours(24 * 365);

// Options that every operation takes.
struct OpOptions {
  std::string name = {};    // shown in errors and compared between ranks; may stay empty
  Milliseconds timeout{0};  // longest time without progress; 0: the communicator's
};

struct ReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  Reduction reduction = Reduction::kFast;
  std::string name = {};
  Milliseconds timeout{0};
};

// What all_gather returns when the sizes were not known before.
struct Gathered {
  OwnedBuffer data;
  std::vector<uint64_t> counts;  // one per rank
};

}  // namespace horon
