#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "horon/comm/failure.h"
#include "horon/net/store.h"

namespace horon {

// The first failure that any rank saw, shared with all ranks: when survivors leave, connections
// break in a chain, and the rank at the other end of a broken one is often not the cause. A rank
// that sees a failure posts it in the store before it closes its connections. Thread-safe; `store`
// may be null.
class FailureBoard {
 public:
  FailureBoard(std::shared_ptr<Store> store, int rank) : store_(std::move(store)), rank_(rank) {}

  // Records the first failure and posts it unless another rank already has. Returns the recorded
  // one.
  Failure report(const Failure& failure);
  // The failure recorded on this rank.
  std::optional<Failure> seen() const;
  // Tells the others which ranks we wait for, after a long wait; empty: no longer waiting.
  void note_waiting(const std::vector<int>& peers);
  // The ranks at the end of the chain of waits: a peer that itself waits for another rank is not to
  // blame, the other one is.
  std::vector<int> find_culprits(const std::vector<int>& peers);
  // Reads what others posted, waiting up to `patience`.
  std::optional<Failure> look(Milliseconds patience);
  // Says that this rank closes its communicator: that its process ends later is no failure.
  void say_goodbye();
  bool has_left(int rank);
  // Records that the connection with `peer` broke; what others posted stands, and a peer that has
  // said goodbye has left.
  void report_broken(int peer);
  // Throws the recorded failure as PeerLostError or TimeoutError.
  [[noreturn]] void raise(const std::string& doing) const;

 private:
  std::shared_ptr<Store> store_;
  int rank_;
  mutable std::mutex mutex_;  // guards failure_
  std::optional<Failure> failure_;
  std::atomic<bool> noted_{false};
};

// The store's text form.
std::string write_failure(const Failure& failure);
std::optional<Failure> read_failure(const std::string& text);

}  // namespace horon
