#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "horon/base/error.h"
#include "horon/base/time.h"

namespace horon {

enum class FailureKind : uint8_t {
  kLost = 1,     // the process ended
  kLeft = 2,     // it closed its communicator
  kTimeout = 3,  // it did not come in time
  kSilent = 4,   // it does not answer: stopped, or its host is gone
};

// Why a communicator is dead: what happened, and to which ranks of the job.
struct Failure {
  FailureKind kind = FailureKind::kLost;
  std::vector<int> ranks;
  Milliseconds after{0};  // kTimeout: how long whoever gave up had waited; 0: not known
};

// Throws it as PeerLostError or TimeoutError; `doing` on `rank` begins the message.
[[noreturn]] void raise(const Failure& failure, const std::string& doing, int rank);
// What an error of raise() was thrown for; nothing for other errors.
std::optional<Failure> failure_of(const Error& error);

}  // namespace horon
