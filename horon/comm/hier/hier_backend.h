#pragma once

#include <memory>

#include "horon/comm/channel.h"
#include "horon/comm/p2p/transport.h"
#include "horon/comm/topology.h"

namespace horon {

// Two levels: shared memory inside a host (`local`, over this host's ranks in the order of the
// topology), messages between hosts (`cross`, over all ranks). All-reduce: reduce inside the host,
// each of several local ranks then all-reduces its share with its counterparts, gather inside the
// host.
// What it has; inside the host and between hosts the lists of those levels decide.
std::vector<AlgorithmRow> hier_algorithms();
std::unique_ptr<Backend> make_hier_backend(const Topology& topology, std::unique_ptr<Backend> local,
                                           std::shared_ptr<Transport> cross);

}  // namespace horon
