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

// The first failure that any rank saw, known to all: connections break in a chain when survivors
// leave, and the rank at the other end of a broken one is often not the culprit. Whoever sees a
// failure posts it in the store before it lets go of its connections. Thread-safe; `store` may be
// null.
class FailureBoard {
 public:
  FailureBoard(std::shared_ptr<Store> store, int rank) : store_(std::move(store)), rank_(rank) {}

  // Keeps the first; posts it unless another rank already has. Returns what now stands.
  Failure report(const Failure& failure);
  // What stands on this rank.
  std::optional<Failure> seen() const;
  // Tells the others whom we wait for, once the wait is long; none: no longer waiting.
  void note_waiting(const std::vector<int>& peers);
  // Those at the end of the chain: if a peer that we wait for waits itself, not it is to blame but
  // the one that it waits for.
  std::vector<int> find_culprits(const std::vector<int>& peers);
  // Looks at what others posted, waiting up to `patience`.
  std::optional<Failure> look(Milliseconds patience);
  // Throws what stands as PeerLostError or TimeoutError.
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
