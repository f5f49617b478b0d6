#pragma once

#include <memory>
#include <vector>

#include "horon/comm/engine/channel.h"
#include "horon/comm/p2p/transport.h"
#include "horon/comm/topology.h"

namespace horon {

// The algorithms of the hier backend; each level uses the list of its own backend.
std::vector<AlgorithmRow> hier_algorithms();
// Pure: the ranks of other hosts that a rank exchanges messages with in two-level operations of all
// ranks: one on each host, or none if its host has more ranks than the smallest one.
std::vector<int> cross_peers(const Topology& topology, int rank);
// Connects to cross_peers(); connections for flat algorithms are made when one is first used.
std::unique_ptr<Backend> make_hier_backend(const Topology& topology, std::unique_ptr<Backend> local,
                                           std::shared_ptr<Transport> cross);

}  // namespace horon
