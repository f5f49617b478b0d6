#include "horon/comm/p2p/failure_board.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "horon/base/text.h"

namespace horon {
namespace {

constexpr const char* kKey = "failure";
constexpr const char* kClaim = "failure-claim";

}  // namespace

std::string write_failure(const Failure& failure) {
  return fmt::format("{} {}", static_cast<int>(failure.kind), fmt::join(failure.ranks, ","));
}

std::optional<Failure> read_failure(const std::string& text) {
  const size_t space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  Failure failure;
  failure.kind = static_cast<FailureKind>(parse_integer(text.substr(0, space), "failure", 1, 3));
  for (const std::string& rank : split(text.substr(space + 1), ',')) {
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

void FailureBoard::raise(const std::string& doing, Milliseconds timeout) const {
  horon::raise(seen().value_or(Failure{}), doing, rank_, timeout);
}

std::string FailureBoard::dead_reason() const {
  const auto failure = seen();
  return failure ? message_of(*failure, "communicator", rank_) : "";
}

}  // namespace horon
