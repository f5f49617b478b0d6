#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horon/comm/algorithm.h"
#include "horon/comm/types.h"

// Choice of the algorithm of an operation: a lookup in the rows that the backend published. Pure.
namespace horon {

// The properties of an operation that the choice depends on. Agreed values are the same on every
// rank.
struct Situation {
  OpKind kind = OpKind::kAllReduce;
  Reduction reduction = Reduction::kFast;
  DeviceKind device = DeviceKind::kCpu;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  uint64_t bytes = 0;  // largest contribution of a rank
  int ranks = 1;       // number of contributing ranks
  bool fits_header = false;
  bool reachable = false;  // peers can access the buffers in place
  bool everybody = true;   // no rank has joined
};

inline constexpr Condition kFitsHeader{
    "not in a group of operations",
    [](const Situation& situation) { return situation.fits_header; }};
inline constexpr Condition kReachable{
    "memory that peers reach", [](const Situation& situation) { return situation.reachable; }};

// The rows of one backend, in order of preference, and the user's overrides.
class AlgorithmTable {
 public:
  // `overrides`: "all_reduce=two_shot,broadcast=tree", or empty. Throws UsageError that names
  // `backend` and its algorithms for one that it does not have, or if an operation occurs twice.
  explicit AlgorithmTable(std::vector<AlgorithmRow> rows, std::string_view backend = "",
                          std::string_view overrides = "");

  // The override if it is possible; else the first row that is possible and within its limits. Null
  // if there is none (device memory is then staged through the host).
  const AlgorithmRow* find(const Situation& situation) const;
  // The same for callers that know that a row exists.
  Algorithm choose(const Situation& situation) const;

  const std::vector<AlgorithmRow>& rows() const { return rows_; }
  // Equal on ranks whose tables make the same choices.
  uint32_t fingerprint() const { return fingerprint_; }

 private:
  static constexpr size_t kKinds = static_cast<size_t>(OpKind::kDeviate) + 1;
  void add_override(std::string_view backend, const std::string& text);

  std::vector<AlgorithmRow> rows_;             // by operation, then by preference
  std::array<size_t, kKinds + 1> first_ = {};  // of each operation in rows_
  std::array<std::optional<Algorithm>, kKinds> overrides_ = {};
  uint32_t fingerprint_ = 0;
};

}  // namespace horon
