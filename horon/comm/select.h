#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horon/comm/types.h"

// Which way an operation goes. Every backend publishes rows: for this operation, on this device, up
// to this many bytes and ranks, that algorithm. The choice is a lookup in them. Pure.
namespace horon {

enum class Algorithm : uint8_t {
  kInline,    // the payload travels with the header
  kInPlace,   // shared memory: read and written where the buffers are
  kWindows,   // shared memory: copied through windows that all can reach
  kOneShot,   // one exchange of everybody with everybody
  kTwoShot,   // reduce-scatter, then all-gather
  kTree,      // binomial tree
  kScatter,   // scatter from the root, then all-gather
  kTwoLevel,  // inside the host, between hosts, inside the host
  kFlat,      // between all ranks, hosts or not
  kNative,    // the library's own collective (NCCL)
};
inline constexpr size_t kAlgorithmCount = 10;

std::string_view name_of(Algorithm algorithm);

// An operation as the choice sees it. What all agreed on is the same on every rank.
struct Situation {
  OpKind kind = OpKind::kAllReduce;
  Reduction reduction = Reduction::kFast;
  DeviceKind device = DeviceKind::kCpu;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  uint64_t bytes = 0;  // the most that a rank brings
  int ranks = 1;       // that contribute
  bool fits_header = false;
  bool reachable = false;  // peers can read and write the buffers where they are
  bool everybody = true;   // nobody has joined
};

// What an algorithm cannot do without.
struct Condition {
  std::string_view words;  // for people
  bool (*holds)(const Situation& situation);
};
inline constexpr Condition kFitsHeader{
    "not in a group of operations",
    [](const Situation& situation) { return situation.fits_header; }};
inline constexpr Condition kReachable{
    "memory that peers reach", [](const Situation& situation) { return situation.reachable; }};

inline constexpr uint64_t kAnyBytes = std::numeric_limits<uint64_t>::max();
inline constexpr int kAnyRanks = std::numeric_limits<int>::max();

// One way that a backend has. Up to `most_bytes` and `most_ranks` it is the better one, `only` is
// when it is possible at all.
struct AlgorithmRow {
  OpKind kind = OpKind::kAllReduce;
  Algorithm algorithm = Algorithm::kInline;
  const Condition* only = nullptr;  // null: always
  uint64_t most_bytes = kAnyBytes;
  int most_ranks = kAnyRanks;
  Reduction reduction = Reduction::kFast;
  DeviceKind device = DeviceKind::kCpu;
};

// "all_reduce=two_shot": how an override asks for it.
std::string override_of(const AlgorithmRow& row);

// What one backend published, in order of preference, and what the user overrides.
class AlgorithmTable {
 public:
  // `overrides`: "all_reduce=two_shot,broadcast=tree", or empty. Throws UsageError that names
  // `backend` and what it has for one that it does not have, or if an operation is there twice.
  explicit AlgorithmTable(std::vector<AlgorithmRow> rows, std::string_view backend = "",
                          std::string_view overrides = "");

  // The override, wherever it is possible; else the first row that is possible and within its
  // limits. Null: there is no way (device memory then goes through the host).
  const AlgorithmRow* find(const Situation& situation) const;
  // The same for callers that know that there is one.
  Algorithm choose(const Situation& situation) const;

  const std::vector<AlgorithmRow>& rows() const { return rows_; }
  // Equal on ranks whose tables choose alike.
  uint32_t fingerprint() const { return fingerprint_; }

 private:
  static constexpr size_t kKinds = static_cast<size_t>(OpKind::kDeviate) + 1;
  void add_override(std::string_view backend, const std::string& text);

  std::vector<AlgorithmRow> rows_;             // by operation, then by preference
  std::array<size_t, kKinds + 1> first_ = {};  // of each operation in rows_
  std::array<std::optional<Algorithm>, kKinds> overrides_ = {};
  uint32_t fingerprint_ = 0;
};

// What backends of one kind publish.
struct Published {
  std::string backends;  // "gloo, mpi"
  std::string remark;    // "absent here", or empty
  std::vector<AlgorithmRow> rows;
};

// All of it for people.
std::string print_algorithms(std::span<const Published> all);

}  // namespace horon
