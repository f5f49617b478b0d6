#include "horon/comm/failure.h"

#include <fmt/format.h>

#include "horon/base/error.h"

namespace horon {

void raise(const Failure& failure, const std::string& doing, int rank, Milliseconds timeout) {
  const std::string where = fmt::format("{} on rank {}", doing, rank);
  const std::string who = name_ranks(failure.ranks);
  const std::string after = "; this communicator is dead, make a new one";
  if (failure.kind == FailureKind::kTimeout) {
    throw TimeoutError(fmt::format("{}: no progress for {}: still waiting for {}{}", where,
                                   format_duration(timeout), who, after),
                       failure.ranks);
  }
  const char* what =
      failure.kind == FailureKind::kLeft ? "closed the communicator" : "is gone (process ended)";
  throw PeerLostError(fmt::format("{}: {} {}{}", where, who, what, after), failure.ranks);
}

std::string message_of(const Failure& failure, const std::string& doing, int rank) {
  try {
    raise(failure, doing, rank, Milliseconds(0));
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace horon
