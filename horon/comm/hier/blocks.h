#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "horon/comm/topology.h"
#include "horon/device/buffer.h"

// Which member does what in operations of two levels. Pure.
namespace horon::hier {

// The members of a channel that contribute to an operation, by host. The p-th members of all hosts
// are connected: they are rail p. There are as many rails as the smallest host has members; the
// other members are on no rail.
struct Arrangement {
  std::vector<std::vector<int>> hosts;  // members, ascending; hosts without one are left out
  size_t host = 0;                      // this member's
  size_t position = 0;                  // this member's, among those of its host
  size_t rails = 1;
  size_t size() const;
  const std::vector<int>& here() const { return hosts[host]; }
  bool has_rail() const { return position < rails; }
};
// `ranks`: of the channel's members; `active`: the members that contribute, including `index`.
Arrangement arrange(const Topology& topology, std::span<const int> ranks,
                    std::span<const int> active, int index);

// An array with one segment for each member (`offsets` as in all_gather), divided by host: the
// segments of a host's members, one after the other, are its block. If all blocks are contiguous in
// the array they are used in place, else in a packed copy.
class Blocks {
 public:
  Blocks(const Arrangement& arrangement, std::span<const uint64_t> offsets);
  bool are_contiguous() const { return contiguous_; }
  uint64_t total() const { return total_; }
  uint64_t count(size_t host) const { return inner_[host].back(); }
  uint64_t longest() const;
  // Bounds of the members' segments in their host's block.
  const std::vector<uint64_t>& inner(size_t host) const { return inner_[host]; }
  // Elements [lo, lo + n) of a host's block, or fewer at its end; `array`: the array or its packed
  // copy.
  BufferView part(const BufferView& array, size_t host, uint64_t lo, uint64_t n) const;
  void pack(const BufferView& array, const BufferView& packed) const;
  void unpack(const BufferView& packed, const BufferView& array) const;

 private:
  std::vector<std::vector<uint64_t>> from_;   // by host and member: where its segment begins
  std::vector<std::vector<uint64_t>> inner_;  // and in the block; the last: the block's end
  std::vector<uint64_t> first_;               // of each host: where its block begins
  uint64_t total_ = 0;
  bool contiguous_ = true;
};

}  // namespace horon::hier
