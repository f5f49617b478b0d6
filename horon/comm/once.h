#pragma once

#include <functional>

#include "horon/comm/communicator.h"

namespace horon {

// Called by all ranks: one rank of each host runs `action` (a download, an unpacking), the others
// wait for it, for as long as it takes. If it failed anywhere, all ranks throw the same Error,
// which names the rank and its reason.
void once_per_host(Communicator& comm, const std::function<void()>& action);

}  // namespace horon
