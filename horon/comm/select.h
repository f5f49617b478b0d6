#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horon/comm/types.h"

// Which way an operation goes, as a table that can be printed and overridden. Pure.
namespace horon {

enum class Algorithm : uint8_t {
  kDefault,   // whatever the backend has
  kInline,    // the payload travels with the header
  kInPlace,   // shared memory: reduce where the buffers are; through windows if peers cannot reach
              // them
  kOneShot,   // everybody sends everything to everybody
  kTwoShot,   // reduce-scatter, then all-gather
  kTree,      // binomial tree
  kScatter,   // scatter from the root, then all-gather
  kTwoLevel,  // inside the host, between hosts, inside the host
  kFlat,      // between all ranks, hosts or not
  kNative,    // the library's own collective (NCCL)
};

std::string_view name_of(Algorithm algorithm);

struct Situation {
  OpKind kind = OpKind::kAllReduce;
  std::string_view backend = {};  // "self", "local", "shm", "gloo", "mpi", "hier", "nccl"
  DeviceKind device = DeviceKind::kCpu;
  uint64_t bytes = 0;
  int ranks = 1;
  bool reachable = false;  // peers can read and write the buffers where they are
};

class AlgorithmTable {
 public:
  // `override_text`: "all_reduce=two_shot,broadcast=tree", or empty. Throws UsageError for unknown
  // names and for an algorithm that the operation does not have. `inline_bytes`: the most that
  // travels with a header.
  AlgorithmTable(const std::string& override_text, size_t inline_bytes);

  Algorithm choose(const Situation& situation) const;
  // Equal on ranks whose tables choose alike.
  uint32_t fingerprint() const { return fingerprint_; }

  // For people.
  static std::string print();

 private:
  struct Override {
    OpKind kind;
    Algorithm algorithm;
  };
  std::vector<Override> overrides_;
  size_t inline_bytes_;
  uint32_t fingerprint_;
};

}  // namespace horon
