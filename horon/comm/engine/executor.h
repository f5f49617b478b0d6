#pragma once

#include <memory>
#include <vector>

#include "horon/comm/engine/channel.h"
#include "horon/comm/engine/select.h"
#include "horon/comm/request.h"
#include "horon/device/stream.h"

namespace horon {

// Runs the operations of one communicator, one after the other: describe, arrive, agree, move.
// Everything common to all backends is here: agreement, messages sent with their headers, join,
// groups, exact sums, device memory. One thread at a time.
class Executor {
 public:
  struct Options {
    std::vector<int> members;  // ranks of the job
    Milliseconds timeout{30000};
    std::string algorithm;                  // override of the table
    std::shared_ptr<DeviceRuntime> device;  // for device buffers; may be null
  };
  Executor(std::shared_ptr<Backend> backend, std::unique_ptr<Channel> channel, Options options);

  // Throws UsageError (the same on all ranks; later operations work), PeerLostError, TimeoutError
  // (the backend is dead).
  void run(const Request& request);
  // The same, but any rank may call deviate() instead: then no data moves on any rank and all get
  // false.
  bool run_unless_deviated(const Request& request);
  void deviate(const OpOptions& options);

  // Whether run() copies device memory to the host and back: the backend has no row for it.
  bool needs_staging(const Request& request) const;

  // The rows that the backend published, and the row used by the last operation; null if no data
  // moved.
  const std::vector<AlgorithmRow>& algorithms() const { return table_.rows(); }
  const AlgorithmRow* chosen() const { return chosen_; }

  // Total microseconds that each member has spent between operations.
  const std::vector<uint64_t>& away_us() const { return away_us_; }

  int index() const { return channel_->index(); }
  int size() const { return channel_->size(); }

 private:
  // One operation of a request as described to the other ranks.
  struct Item {
    const Request* request = nullptr;  // with host memory; lives as long as the operation
    std::vector<uint64_t> counts;      // reduce_scatter: the segments
    Header header;
    std::vector<uint64_t> extra;  // all_to_all: sends, receives; exact: first, level, address each
  };
  // The descriptions of one item from all members.
  struct Said {
    std::vector<Header> headers;
    std::vector<std::vector<uint64_t>> extra;
  };

  void run_on_host(const Request& request, Milliseconds timeout);
  int run_join(Milliseconds timeout);

  // Describes the request as a header and items.
  Header describe(const Request& request, std::vector<Item>& items) const;
  Item describe_item(const Request& request) const;
  void add_exact_nodes(Item& item, const ExactSum& sum) const;
  static std::vector<std::byte> pack_details(const std::vector<Item>& items, bool is_group);
  bool goes_inline(const Item& item) const;
  // Exchanges headers, agrees on them, then reads and checks the details.
  void arrive(const std::vector<Item>& items, Header header, std::span<const std::byte> details,
              Milliseconds timeout);
  void agree_on_headers();
  std::vector<Said> read_said(const std::vector<Item>& items, bool is_group,
                              std::span<const std::byte> details, Milliseconds timeout);
  std::vector<Said> read_group(size_t items,
                               const std::vector<std::vector<std::byte>>& blobs) const;
  std::vector<std::vector<std::byte>> read_blobs(std::span<const std::byte> mine,
                                                 Milliseconds timeout);
  void check(const std::vector<Said>& said, bool is_group) const;
  std::string check_sends(const Said& said) const;
  std::string check_exact(const Said& said) const;
  static std::vector<NodeArray> nodes_of(const std::vector<uint64_t>& words);

  // The situation as seen by this rank, and as agreed on by all ranks.
  Situation situation_of(const Request& request, uint64_t address) const;
  Situation situation_of(const Item& item, const Said& said) const;
  bool nodes_reachable(const Said& said) const;

  void move(const Item& item, const Said& said, Milliseconds timeout);
  void move_staged(const Item& item, const Said& said, Milliseconds timeout);
  void move_by_channel(const Item& item, const Said& said, const Round& round);
  void move_inline(const Item& item, const Said& said, const Round& round);
  void move_exact(const Item& item, const Said& said, const Round& round);
  void move_gather(const Item& item, const Said& said, const Round& round);

  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Channel> channel_;
  Options options_;
  AlgorithmTable table_;
  size_t inline_bytes_;
  const AlgorithmRow* chosen_ = nullptr;
  std::vector<int> active_;  // members that contribute, or did last time
  std::vector<uint64_t> away_us_;
  Clock::time_point last_end_ = Clock::now();
};

}  // namespace horon
