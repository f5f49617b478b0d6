#pragma once

#include <array>
#include <memory>
#include <vector>

#include "horon/comm/engine/channel.h"
#include "horon/comm/engine/select.h"
#include "horon/comm/hier/blocks.h"
#include "horon/comm/p2p/channel.h"

namespace horon::hier {

// Operations of some members of a channel in two levels. Members of one host use its shared memory;
// every element is sent between two hosts once in each direction that needs it, on the rail that
// owns it. Sums are formed inside each host, in the order of its members, then in the order of the
// hosts; 16-bit floats are summed in f32 and averages of integers in 64 bits, and rounded once. A
// `round` that is passed in uses the channel's member numbers. Errors as for Channel. One thread at
// a time.
class Levels {
 public:
  // `id`: the same for all of `active`, and used by no other operation at that time.
  Levels(const Topology& topology, std::shared_ptr<Backend> local,
         const std::shared_ptr<Transport>& cross, std::span<const int> ranks,
         std::vector<int> active, int index, uint64_t id);

  const std::vector<int>& active() const { return active_; }
  const Arrangement& arrangement() const { return all_; }
  Channel& local() const { return *local_; }
  P2pChannel* rail() const { return rail_.get(); }  // null: this member is on no rail
  // Connects the members of this member's rail, the first time. All of them call it: some
  // operations have no message between two of them, and one would wait in vain for the other one's
  // call.
  void connect_rail();

  void all_reduce(const Round& round, BufferView data, ReduceOp op);
  void reduce_scatter(const Round& round, BufferView in, BufferView out,
                      std::span<const uint64_t> offsets, ReduceOp op);
  void all_gather(const Round& round, BufferView in, BufferView out,
                  std::span<const uint64_t> offsets);
  void broadcast(const Round& round, BufferView data, int root);
  void all_to_all(const Round& round, BufferView in, BufferView out,
                  const std::vector<std::vector<uint64_t>>& sends);
  void reduce_tree(const Round& round, const TreeCall& call);

 private:
  enum Scratch : size_t { kPacked, kWide, kParts, kWhole, kFirst, kSecond, kThird, kNodes };

  // Begins an operation: keeps its header and time limit.
  void begin(const Round& round);
  // A round of this host's members, after a barrier that exchanges the addresses of `in` and `out`.
  Round inside(Situation situation, const BufferView& in, const BufferView& out);
  // A round of the rail's members.
  Round across(OpKind kind, uint64_t bytes, Reduction reduction = Reduction::kFast) const;
  // Memory that is valid until the next call with the same `which`; peers of this host can read it.
  BufferView scratch(size_t which, uint64_t count, DType dtype);

  // Bounds of the elements that each member of the host owns; members on no rail own none.
  std::vector<uint64_t> runs_of(uint64_t count) const;
  BufferView my_run(const BufferView& part) const;
  // Copies the runs of all owners to all members of this host.
  void gather_runs(const BufferView& part);
  // Sums `part` inside the host; `run` receives this member's run.
  void reduce_inside(const BufferView& part, const BufferView& run, ReduceOp op);
  void reduce_window(const BufferView& part, ReduceOp op);
  // Divides (averages) and rounds a sum of the wide type.
  void finish_wide(const BufferView& wide, const BufferView& out, ReduceOp op) const;
  void divide(const BufferView& data) const;
  void scatter_window(const Blocks& blocks, const BufferView& in, uint64_t lo, uint64_t n,
                      const BufferView& whole, ReduceOp op);
  void reduce_tree_window(const TreeCall& call, uint64_t lo, const BufferView& out,
                          const std::vector<std::vector<OwnedNode>>& nodes,
                          const std::vector<std::pair<int, size_t>>& holders);
  // The phases of an all_to_all: to the members on rails, between hosts, to the receivers.
  BufferView send_to_rails(const BufferView& in, const std::vector<std::vector<uint64_t>>& sends);
  BufferView send_across(const BufferView& collected,
                         const std::vector<std::vector<uint64_t>>& sends);
  void deliver(const BufferView& in, const BufferView& crossed, const BufferView& out,
               const std::vector<std::vector<uint64_t>>& sends);

  size_t members() const { return all_.here().size(); }
  size_t rail_of(size_t position) const { return position % all_.rails; }

  std::shared_ptr<Backend> backend_;
  std::shared_ptr<Transport> cross_;
  std::vector<int> rail_ranks_;  // not yet connected
  std::vector<int> active_;
  int index_;
  Arrangement all_;
  AlgorithmTable local_table_;
  AlgorithmTable cross_table_{P2pChannel::algorithms(false)};  // no headers, so nothing is inline
  std::unique_ptr<Channel> local_;
  std::unique_ptr<P2pChannel> rail_;
  std::vector<int> everybody_here_;
  std::vector<int> all_hosts_;
  Header header_;  // of the operation
  Milliseconds timeout_{0};
  std::vector<OwnedBuffer> scratch_;
};

}  // namespace horon::hier
