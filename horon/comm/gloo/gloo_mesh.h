#pragma once

#include <memory>
#include <vector>

#include "horon/base/fd.h"
#include "horon/base/time.h"

namespace gloo {
class Context;
}

namespace horon {

// Gloo over our own connections: links[r] leads to rank r. Gloo itself would listen on one port per
// pair and accept the first connection as the peer.
std::shared_ptr<gloo::Context> make_gloo_context(int rank, std::vector<Fd> links,
                                                 Milliseconds timeout);

}  // namespace horon
