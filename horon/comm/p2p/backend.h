#pragma once

#include <memory>

#include "horon/comm/engine/channel.h"
#include "horon/comm/p2p/transport.h"

namespace horon {

// A backend whose channels are P2pChannels over `transport`.
std::unique_ptr<Backend> make_p2p_backend(std::shared_ptr<Transport> transport);

}  // namespace horon
