#pragma once

#include <memory>

#include "horon/comm/engine/channel.h"
#include "horon/comm/p2p/transport.h"
#include "horon/comm/topology.h"

namespace horon {

// The algorithms of the hier backend; inside hosts and between hosts the lists of the two levels
// apply.
std::vector<AlgorithmRow> hier_algorithms();
std::unique_ptr<Backend> make_hier_backend(const Topology& topology, std::unique_ptr<Backend> local,
                                           std::shared_ptr<Transport> cross);

}  // namespace horon
