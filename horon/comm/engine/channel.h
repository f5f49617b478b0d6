#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "horon/comm/algorithm.h"
#include "horon/comm/arithmetic/exact_tree.h"
#include "horon/comm/engine/header.h"
#include "horon/comm/failure.h"

namespace horon {

// The agreed parameters of an operation's payload phase: the members' headers, in member order; the
// members that contribute (`active`, never empty, contains us); how long a wait may last without
// progress; and the algorithm, one that the backend published.
struct Round {
  std::span<const Header> headers;
  std::span<const int> active;
  Milliseconds timeout;
  Algorithm algorithm;
  bool is_ready = false;  // device memory can be read at once; else behind the default stream
};

// One complete node of an exact sum and the member's array for it.
struct NodeArray {
  TreeNode node;
  uint64_t address = kNoAddress;  // where peers with shared memory can read it
};

// The arguments of reduce_tree(), identical on all members except `mine` and `out`.
struct TreeCall {
  DType dtype = DType::kF32;
  uint32_t divisor = 1;
  std::vector<std::vector<NodeArray>> nodes;  // of each member
  std::vector<const void*> mine;              // this member's arrays, in the order of nodes[index]
  BufferView out;
};

// Moves bytes between one set of ranks over one backend. Checks, agreement, small messages, join,
// device buffers and asynchrony are common code above this class. One thread at a time; members are
// numbered 0..size-1. All payload calls are collective over round.active, work on host memory
// unless a device row was chosen, and run round.algorithm (Error if the backend did not publish it
// for the operation). They throw PeerLostError or TimeoutError naming ranks of the job; the backend
// is then dead.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual int index() const = 0;
  virtual int size() const = 0;

  // Largest payload that is sent with the header, in bytes.
  virtual size_t inline_bytes() const = 0;
  // Sends our header to the others and waits until all headers have arrived. `inline_data` may be
  // empty; it reaches the others if the header has is_inline or blob_bytes.
  virtual void arrive(const Header& header, std::span<const std::byte> inline_data,
                      Milliseconds timeout) = 0;
  // The headers from the last arrive(); inline data is valid until the next one.
  virtual std::span<const Header> headers() const = 0;
  virtual const std::byte* inline_data(int member) const = 0;
  // The address by which peers access this memory, or kNoAddress.
  virtual uint64_t address_of(const BufferView& view) const = 0;

  // In place.
  virtual void all_reduce(const Round& round, BufferView data, ReduceOp op) = 0;
  // in: the segments of all members one after the other; member i has elements offsets[i] to
  // offsets[i+1].
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

// One rank's access to all ranks of a job over one kind of transport; creates channels.
// Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A channel for these ranks (sorted, containing ours); opens no new connections. `id` identifies
  // the set of ranks and is the same on all members.
  virtual std::unique_ptr<Channel> open_channel(std::span<const int> members, uint64_t id) = 0;
  // Memory that peers access without a copy if the backend supports it; plain host memory
  // otherwise.
  virtual OwnedBuffer allocate(uint64_t count, DType dtype) = 0;
  // Why the backend is dead, after a peer was lost or a deadline passed.
  virtual std::optional<Failure> failure() const = 0;
  // Marks the backend dead because of a failure that was detected elsewhere.
  virtual void mark_dead(const Failure& failure) = 0;
  // Processor time that this rank spent with encryption.
  virtual double seconds_encrypting() const { return 0; }
  // The algorithms of its channels, the same on all ranks: for each operation in order of
  // preference, the last one for host memory without limits. Device memory without a row is staged
  // through pinned host memory.
  virtual std::vector<AlgorithmRow> algorithms() const = 0;
};

// For channels: throws Error for an algorithm that was not published for the operation.
[[noreturn]] void refuse(const Round& round, OpKind kind);

// Prefix sums: member i begins at offsets[i]; the last entry is the total.
std::vector<uint64_t> offsets_of(std::span<const uint64_t> counts);

// Splits `count` elements into `parts` nearly equal ranges whose bounds are multiples of `grain`;
// returns parts + 1 offsets.
std::vector<uint64_t> cut_evenly(uint64_t count, size_t parts, uint64_t grain);

}  // namespace horon
