#include "horon/comm/failure.h"

#include <fmt/format.h>

namespace horon {

// Not in an unnamed namespace: a part that was opened has a copy of this code, and its errors must
// be of the same type as ours.
template <typename Base>
struct Raised final : Base {
  Raised(const std::string& what, const Failure& why) : Base(what, why.ranks), failure(why) {}
  Failure failure;
};

namespace {

std::string reason_of(const Failure& failure) {
  const std::string who = name_ranks(failure.ranks);
  const bool one = failure.ranks.size() == 1;
  switch (failure.kind) {
    case FailureKind::kTimeout:
      return failure.after.count() == 0 ? fmt::format("still waiting for {}", who)
                                        : fmt::format("no progress for {}: still waiting for {}",
                                                      format_duration(failure.after), who);
    case FailureKind::kSilent:
      return fmt::format("{} {} not answer (stopped, or the host is gone)", who,
                         one ? "does" : "do");
    case FailureKind::kForged:
      return fmt::format("what came from {} was changed on its way, or is damaged", who);
    case FailureKind::kLeft:
      return fmt::format("{} closed the communicator", who);
    default:
      return fmt::format("{} {} gone (process ended)", who, one ? "is" : "are");
  }
}

}  // namespace

void raise(const Failure& failure, const std::string& doing, int rank) {
  const std::string text =
      fmt::format("{} on rank {}: {}; this communicator is dead, make a new one", doing, rank,
                  reason_of(failure));
  const bool late = failure.kind == FailureKind::kTimeout || failure.kind == FailureKind::kSilent;
  if (late) throw Raised<TimeoutError>(text, failure);
  throw Raised<PeerLostError>(text, failure);
}

std::optional<Failure> failure_of(const Error& error) {
  if (const auto* lost = dynamic_cast<const Raised<PeerLostError>*>(&error)) return lost->failure;
  if (const auto* late = dynamic_cast<const Raised<TimeoutError>*>(&error)) return late->failure;
  return std::nullopt;
}

}  // namespace horon
