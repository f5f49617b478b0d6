#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horon/comm/types.h"

// The algorithms of backends. Every backend publishes rows: for this operation, on this device, up
// to this many bytes and ranks, use this algorithm. engine/select.h chooses by these rows. Pure.
namespace horon {

struct Situation;  // engine/select.h

// How an operation moves its bytes.
enum class Algorithm : uint8_t {
  kInline,    // the payload is sent with the header
  kInPlace,   // shared memory: read and written where the buffers are
  kWindows,   // shared memory: copied through windows that all ranks can access
  kOneShot,   // one exchange between all pairs
  kTwoShot,   // reduce-scatter, then all-gather
  kTree,      // binomial tree
  kScatter,   // scatter from the root, then all-gather
  kTwoLevel,  // inside the host, between hosts, inside the host
  kFlat,      // between all ranks, ignoring hosts
  kNative,    // the library's own collective (NCCL)
};
inline constexpr size_t kAlgorithmCount = 10;

std::string_view name_of(Algorithm algorithm);

// A requirement without which an algorithm is impossible.
struct Condition {
  std::string_view words;  // for messages
  bool (*holds)(const Situation& situation);
};
inline constexpr uint64_t kAnyBytes = std::numeric_limits<uint64_t>::max();
inline constexpr int kAnyRanks = std::numeric_limits<int>::max();

// One algorithm of a backend. It is preferred up to `most_bytes` and `most_ranks`; `only` says when
// it is possible at all.
struct AlgorithmRow {
  OpKind kind = OpKind::kAllReduce;
  Algorithm algorithm = Algorithm::kInline;
  const Condition* only = nullptr;  // null: always
  uint64_t most_bytes = kAnyBytes;
  int most_ranks = kAnyRanks;
  Reduction reduction = Reduction::kFast;
  DeviceKind device = DeviceKind::kCpu;
};

// The text of an override that selects this row: "all_reduce=two_shot".
std::string override_of(const AlgorithmRow& row);

// The rows of backends of one kind.
struct Published {
  std::string backends;  // "gloo, mpi"
  std::string remark;    // "absent here", or empty
  std::vector<AlgorithmRow> rows;
};

// All rows as text.
std::string print_algorithms(std::span<const Published> all);

}  // namespace horon
