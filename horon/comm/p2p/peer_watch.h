#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "horon/base/thread.h"
#include "horon/net/store.h"

namespace horon {

// Reports within a millisecond when a peer's process on this host ends, even if a forked child
// keeps its sockets open. Peers on other hosts are not watched: their connections report failures.
class PeerWatch {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    std::string host_id;
    Milliseconds idle_tick{-1};  // see on_tick; negative: never
  };
  // Collective: exchanges process identities through the store. `on_death` is called on the watch's
  // thread, once for each rank that ends. `on_tick` is also called there: after wake(), then every
  // 100 ms as long as it returns true, and after `idle_tick` when it has returned false.
  PeerWatch(const Options& options, Store& store, Deadline deadline,
            std::function<void(int rank)> on_death, std::function<bool()> on_tick);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Starts calling `on_tick`. Thread-safe.
  void wake() const;

 private:
  void run(const std::stop_token& stop);

  std::vector<int> processes_;  // pidfd of each rank, -1: not watched
  int wake_ = -1;
  std::function<void(int)> on_death_;
  std::function<bool()> on_tick_;
  Milliseconds idle_tick_{-1};
  OwnProcess process_;
  std::jthread thread_;
};

}  // namespace horon
