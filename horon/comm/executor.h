#pragma once

#include <memory>
#include <vector>

#include "horon/comm/channel.h"
#include "horon/comm/request.h"
#include "horon/comm/select.h"
#include "horon/device/mirror.h"

namespace horon {

// Runs the operations of one group: describe, arrive, agree, move, one after the other. What is
// common to all backends is here and nowhere else: agreement, messages that travel with their
// headers, join, groups, exact sums, device memory. One thread at a time.
class Executor {
 public:
  struct Options {
    std::vector<int> members;  // ranks of the job
    Milliseconds timeout{30000};
    std::string algorithm;                  // override of the table
    std::shared_ptr<DeviceRuntime> device;  // for device buffers; may be null
  };
  Executor(std::shared_ptr<Backend> backend, std::unique_ptr<Channel> channel, Options options);

  // Throws UsageError (the same on all ranks; the group works on), PeerLostError, TimeoutError (the
  // backend is dead).
  void run(const Request& request);
  // The same, but any rank may deviate() instead: then nothing moves anywhere and all get false.
  bool run_unless_deviated(const Request& request);
  void deviate(const OpOptions& options);

  // Microseconds that each member has spent between operations, in all.
  const std::vector<uint64_t>& away_us() const { return away_us_; }

  int index() const { return channel_->index(); }
  int size() const { return channel_->size(); }

 private:
  // One operation of a request as it is told to the others.
  struct Item {
    const Request* request = nullptr;  // with host memory; lives as long as the operation
    std::vector<uint64_t> counts;      // reduce_scatter: the segments
    Header header;
    std::vector<uint64_t> extra;  // all_to_all: sends, receives; exact: first, level, address each
  };
  // What all members said about one item.
  struct Said {
    std::vector<Header> headers;
    std::vector<std::vector<uint64_t>> extra;
  };

  bool needs_staging(const Request& request);
  void run_on_host(const Request& request, Milliseconds timeout);
  int run_join(Milliseconds timeout);
  Item describe_item(const Request& request);
  static std::vector<NodePlace> nodes_of(const std::vector<uint64_t>& words);
  bool goes_inline(const Item& item) const;
  void add_exact_nodes(Item& item, const ExactSum& sum) const;
  std::vector<Said> tell(std::vector<Item>& items, const Header& outer, Milliseconds timeout);
  std::vector<std::vector<std::byte>> read_blobs(std::span<const std::byte> mine,
                                                 Milliseconds timeout);
  void check(const std::vector<Said>& said, std::vector<int>& active) const;
  std::string check_exact(const Said& said, const std::vector<int>& active) const;
  void move(const Item& item, const Said& said, const std::vector<int>& active,
            Milliseconds timeout);
  void move_inline(const Item& item, const Said& said, const std::vector<int>& active);
  void move_exact(const Item& item, const Said& said, const Round& round);
  void move_gather(const Item& item, const Said& said, const Round& round);
  Algorithm choose(const Said& said, const std::vector<int>& active) const;

  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Channel> channel_;
  Options options_;
  std::string name_;  // of the backend
  AlgorithmTable table_;
  std::vector<int> last_active_;  // who contributed last time: for join
  std::vector<uint64_t> away_us_;
  Clock::time_point last_end_ = Clock::now();
};

}  // namespace horon
