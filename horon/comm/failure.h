#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horon/base/time.h"

namespace horon {

enum class FailureKind : uint8_t { kLost = 1, kLeft = 2, kTimeout = 3 };

// Why a communicator is dead: what happened, and to which ranks of the job.
struct Failure {
  FailureKind kind = FailureKind::kLost;
  std::vector<int> ranks;
};

// Throws it as PeerLostError or TimeoutError; `doing` on `rank` begins the message.
[[noreturn]] void raise(const Failure& failure, const std::string& doing, int rank,
                        Milliseconds timeout);

// The message alone.
std::string message_of(const Failure& failure, const std::string& doing, int rank);

}  // namespace horon
