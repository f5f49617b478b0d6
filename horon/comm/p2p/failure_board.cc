#include "horon/comm/p2p/failure_board.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "horon/base/text.h"
#include "horon/comm/types.h"

namespace horon {
namespace {

constexpr const char* kKey = "failure";
constexpr const char* kClaim = "failure-claim";

std::string waiting_key(int rank) { return fmt::format("waiting/{}", rank); }
std::string goodbye_key(int rank) { return fmt::format("left/{}", rank); }

}  // namespace

std::string write_failure(const Failure& failure) {
  return fmt::format("{} {} {}", static_cast<int>(failure.kind), failure.after.count(),
                     fmt::join(failure.ranks, ","));
}

std::optional<Failure> read_failure(const std::string& text) {
  const std::vector<std::string> words = split(text, ' ');
  if (words.size() != 3) return std::nullopt;
  Failure failure;
  failure.kind = static_cast<FailureKind>(parse_integer(words[0], "failure", 1, 5));
  failure.after = Milliseconds(parse_integer(words[1], "failure", 0, kNoLimit.count()));
  for (const std::string& rank : split(words[2], ',')) {
    failure.ranks.push_back(static_cast<int>(parse_integer(rank, "failure", 0, 1 << 20)));
  }
  return failure;
}

Failure FailureBoard::report(const Failure& failure) {
  if (const auto standing = seen()) return *standing;
  Failure first = failure;
  try {
    const Deadline soon = Deadline::after(std::chrono::seconds(2));
    if (store_ && store_->add(kClaim, 1, soon) == 1) {
      store_->set(kKey, write_failure(failure), soon);
    } else if (store_) {
      first = look(Milliseconds(500)).value_or(failure);
    }
  } catch (const std::exception&) {  // the store went with its host: what we saw ourselves stands
  }
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = first;
  return *failure_;
}

std::optional<Failure> FailureBoard::seen() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void FailureBoard::note_waiting(const std::vector<int>& peers) {
  if (!store_ || noted_.exchange(!peers.empty()) == !peers.empty()) return;
  try {
    const Deadline soon = Deadline::after(Milliseconds(500));
    if (noted_) {
      store_->set(waiting_key(rank_), fmt::format("{}", fmt::join(peers, ",")), soon);
    } else {
      store_->remove(waiting_key(rank_), soon);
    }
  } catch (const std::exception&) {  // only help for a message: not worth an error
  }
}

std::vector<int> FailureBoard::find_culprits(const std::vector<int>& peers) {
  std::set<int> seen_ranks = {rank_};
  std::vector<int> open = peers;
  std::vector<int> culprits;
  while (store_ && !open.empty()) {
    const int peer = open.back();
    open.pop_back();
    if (!seen_ranks.insert(peer).second) continue;
    try {
      for (const std::string& next :
           split(store_->get(waiting_key(peer), Deadline::after(Milliseconds(0))), ',')) {
        open.push_back(static_cast<int>(parse_integer(next, "rank", 0, 1 << 20)));
      }
    } catch (const std::exception&) {  // it does not wait: the chain ends here
      culprits.push_back(peer);
    }
  }
  std::sort(culprits.begin(), culprits.end());
  return culprits.empty() ? peers : culprits;
}

std::optional<Failure> FailureBoard::look(Milliseconds patience) {
  if (const auto standing = seen()) return standing;
  if (!store_) return std::nullopt;
  try {
    const auto posted = read_failure(store_->get(kKey, Deadline::after(patience)));
    const std::lock_guard lock(mutex_);
    if (posted && !failure_) failure_ = posted;
    return failure_;
  } catch (const std::exception&) {  // nothing posted in time, or no store left to ask
    return seen();
  }
}

void FailureBoard::say_goodbye() {
  if (!store_) return;
  try {
    store_->set(goodbye_key(rank_), "1", Deadline::after(std::chrono::seconds(1)));
  } catch (const std::exception&) {  // the store is gone; so are the others
  }
}

bool FailureBoard::has_left(int rank) {
  if (!store_) return false;
  try {
    store_->get(goodbye_key(rank), Deadline::after(Milliseconds(0)));
    return true;
  } catch (const std::exception&) {  // no such key, or no store left to ask
    return false;
  }
}

void FailureBoard::report_broken(int peer) {
  if (look(Milliseconds(0))) return;
  if (has_left(peer)) {
    report({FailureKind::kLeft, {peer}});
  } else if (!look(Milliseconds(300))) {  // nobody says who it was: whose connection broke
    report({FailureKind::kLost, {peer}});
  }
}

void FailureBoard::raise(const std::string& doing) const {
  horon::raise(seen().value_or(Failure{}), doing, rank_);
}

}  // namespace horon
