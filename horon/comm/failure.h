#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/time.h"

namespace horon {

// What happened to the ranks.
enum class FailureKind : uint8_t {
  kLost = 1,     // the process ended
  kLeft = 2,     // it closed its communicator
  kTimeout = 3,  // it did not come in time
  kSilent = 4,   // it does not answer: stopped, or its host is gone
  kForged = 5,   // bytes that it did not send came in its name
};

// Why a communicator is dead: what happened, to which ranks of the job.
struct Failure {
  FailureKind kind = FailureKind::kLost;
  std::vector<int> ranks;
  Milliseconds after{0};  // kTimeout: how long the rank that gave up had waited; 0: unknown
};

// Throws the failure as PeerLostError or TimeoutError; the message begins with `doing` on `rank`.
[[noreturn]] void raise(const Failure& failure, const std::string& doing, int rank);
// The failure of an error thrown by raise(); nothing for other errors.
std::optional<Failure> failure_of(const Error& error);

}  // namespace horon
