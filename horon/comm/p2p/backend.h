#pragma once

#include <memory>

#include "horon/comm/channel.h"
#include "horon/comm/p2p/transport.h"

namespace horon {

std::unique_ptr<Backend> make_p2p_backend(std::shared_ptr<Transport> transport);

}  // namespace horon
