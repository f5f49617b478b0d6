#pragma once

#include <functional>

#include "horon/comm/communicator.h"

namespace horon {

// Collective: one rank of each host runs `action` (e.g. a download), the others wait for it without
// limit. If it fails anywhere, all ranks throw the same Error, which names the rank and its reason.
//
//   once_per_host(comm, [&] { download(folder); });
void once_per_host(Communicator& comm, const std::function<void()>& action);

}  // namespace horon
