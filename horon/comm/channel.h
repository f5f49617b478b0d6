#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horon/comm/exact_tree.h"
#include "horon/comm/failure.h"
#include "horon/comm/header.h"
#include "horon/comm/select.h"

namespace horon {

// What is agreed when the payload of an operation starts: the members' headers, in member order,
// who contributes (`active`, never empty, contains us), how long a wait may last without progress,
// and which of the algorithms that the backend published.
struct Round {
  std::span<const Header> headers;
  std::span<const int> active;
  Milliseconds timeout;
  Algorithm algorithm;
};

// One complete node of an exact sum, held by one member.
struct NodePlace {
  TreeNode node;
  uint64_t address = kNoAddress;  // where peers that share memory read it
};

struct TreeCall {
  DType dtype = DType::kF32;
  uint32_t divisor = 1;
  std::vector<std::vector<NodePlace>> nodes;  // of every member
  std::vector<const void*> mine;              // this member's arrays, in the order of nodes[index]
  BufferView out;
};

// How one group of ranks moves bytes over one backend. The rest (checks, agreement, small messages,
// join, device buffers, asynchrony) is common code above. One thread at a time; members are
// numbered 0..size-1 within the group. All payload calls are collective over round.active, work on
// host memory unless a row for a device was chosen, do what round.algorithm says (an Error if the
// backend did not publish that for the operation), and throw PeerLostError or TimeoutError naming
// ranks of the world; after that the backend is dead.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual int index() const = 0;
  virtual int size() const = 0;

  // Largest payload that travels with the header.
  virtual size_t inline_bytes() const = 0;
  // Tells the others what is coming and waits until all have told us. `inline_data` may be empty.
  virtual void arrive(const Header& header, std::span<const std::byte> inline_data,
                      Milliseconds timeout) = 0;
  // What the members said at the last arrive(); inline data is valid until the next one.
  virtual std::span<const Header> headers() const = 0;
  virtual const std::byte* inline_data(int member) const = 0;
  // The address that peers would use for this memory, or kNoAddress.
  virtual uint64_t address_of(const BufferView& view) const = 0;

  // In place.
  virtual void all_reduce(const Round& round, BufferView data, ReduceOp op) = 0;
  // in: the segments of all members one after the other, offsets[i]..offsets[i+1] for member i.
  virtual void reduce_scatter(const Round& round, BufferView in, BufferView out,
                              std::span<const uint64_t> offsets, ReduceOp op) = 0;
  virtual void all_gather(const Round& round, BufferView in, BufferView out,
                          std::span<const uint64_t> offsets) = 0;
  virtual void broadcast(const Round& round, BufferView data, int root) = 0;
  // sends[i][j]: elements from member i to member j, laid out in order of j (in) and of i (out).
  virtual void all_to_all(const Round& round, BufferView in, BufferView out,
                          const std::vector<std::vector<uint64_t>>& sends) = 0;
  virtual void reduce_tree(const Round& round, const TreeCall& call) = 0;
};

// All ranks of a job over one kind of transport; hands out channels to groups. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A view for these ranks (sorted, containing ours); no new connections. `id` tells groups apart
  // and is the same on all members.
  virtual std::unique_ptr<Channel> open_channel(std::span<const int> members, uint64_t id) = 0;
  // Memory that peers reach without a copy where the backend can; plain host memory otherwise.
  virtual OwnedBuffer allocate(uint64_t count, DType dtype) = 0;
  // Why nothing works any more, once a peer was lost or a deadline passed.
  virtual std::optional<Failure> failure() const = 0;
  // A failure seen by somebody else: this backend is dead, too.
  virtual void mark_dead(const Failure& failure) = 0;
  // The algorithms that its channels have, the same on all ranks: for each operation in order of
  // preference, the last one for host memory without limits. Device memory that no row is for is
  // staged through pinned host memory.
  virtual std::vector<AlgorithmRow> algorithms() const = 0;
};

// For channels: an algorithm that was never published for the operation.
[[noreturn]] void refuse(const Round& round, OpKind kind);

// Sum of sizes up to each member: offsets[i] is where member i begins, the last one is the total.
std::vector<uint64_t> offsets_of(std::span<const uint64_t> counts);

// Cuts `count` elements into `parts` nearly equal runs whose borders are multiples of `grain`; the
// result has parts + 1 offsets.
std::vector<uint64_t> cut_evenly(uint64_t count, size_t parts, uint64_t grain);

}  // namespace horon
