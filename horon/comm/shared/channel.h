#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/comm/engine/channel.h"
#include "horon/comm/shared/shared_region.h"

namespace horon::shared {

// Collectives over shared memory. Buffers that peers can access (among threads all, among processes
// those on the communicator's heap) are read and written in place; others go through windows.
//
// One operation, from each member's view:
//   arrive    writes header (and small payload) to its slot of this parity; barrier of all members
//   payload   reads of peers' memory, with barriers of the active members in between
//   finish    barrier of the active members: no buffer is accessed after its owner's call returned
// Slots alternate by parity of the operation number: a member can be at most one operation ahead.
class SharedChannel final : public Channel {
 public:
  SharedChannel(std::shared_ptr<SharedRegion> region, std::vector<int> members, uint64_t id);
  ~SharedChannel() override;
  // Its algorithms; `inline_bytes` are sent with a header.
  static std::vector<AlgorithmRow> algorithms(size_t inline_bytes);

  int index() const override { return index_; }
  int size() const override { return static_cast<int>(members_.size()); }
  size_t inline_bytes() const override { return region_->options().inline_bytes; }
  void arrive(const Header& header, std::span<const std::byte> inline_data,
              Milliseconds timeout) override;
  std::span<const Header> headers() const override { return headers_; }
  const std::byte* inline_data(int member) const override;
  uint64_t address_of(const BufferView& view) const override;

  void all_reduce(const Round& round, BufferView data, ReduceOp op) override;
  void reduce_scatter(const Round& round, BufferView in, BufferView out,
                      std::span<const uint64_t> offsets, ReduceOp op) override;
  void all_gather(const Round& round, BufferView in, BufferView out,
                  std::span<const uint64_t> offsets) override;
  void broadcast(const Round& round, BufferView data, int root) override;
  void all_to_all(const Round& round, BufferView in, BufferView out,
                  const std::vector<std::vector<uint64_t>>& sends) override;
  void reduce_tree(const Round& round, const TreeCall& call) override;

 private:
  Member& state(int member) const { return states_[member]; }
  char* stage(int member) const;
  void reduce_in_place(const Round& round, std::span<char* const> buffers, uint64_t count,
                       const BufferView& like, ReduceOp op) const;
  void reduce_window(const Round& round, BufferView part, ReduceOp op);
  // Runs `body(lo, hi)` over windows of at most `window` elements of `total`.
  static void for_windows(uint64_t total, uint64_t window,
                          const std::function<void(uint64_t lo, uint64_t hi)>& body);
  // A barrier of `parties` members; `stamp` is the progress that a member publishes on arrival.
  void meet(Barrier& barrier, uint32_t parties, uint64_t stamp, Milliseconds timeout);
  void next_phase(const Round& round);  // barrier over the active members
  void wait(Barrier& barrier, uint32_t seen, uint64_t stamp, Milliseconds timeout);
  void check_peers(uint64_t stamp, Deadline deadline, Milliseconds timeout);
  std::vector<int> ranks_behind(uint64_t stamp) const;
  std::vector<int> job_ranks(std::vector<int> ranks) const;

  std::shared_ptr<SharedRegion> region_;
  std::vector<int> members_;
  int index_ = 0;
  int channel_;
  ChannelControl& control_;
  Member* states_;
  uint64_t sequence_ = 0;
  uint64_t phases_ = 0;  // barriers since the last arrive
  std::vector<Header> headers_;
  OwnProcess process_;
};

}  // namespace horon::shared
