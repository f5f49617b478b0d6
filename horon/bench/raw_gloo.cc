#include "horon/base/part.h"
#include "horon/bench/raw_peer.h"

namespace horon::bench {

std::unique_ptr<RawPeer> make_raw_gloo(int rank, int size, const std::shared_ptr<Store>& store,
                                       const std::vector<std::string>& part_folders) {
  const auto part = Part::open("raw_gloo", part_folders);
  using Make = RawPeer*(int, int, const std::shared_ptr<Store>*);
  return std::unique_ptr<RawPeer>(part->function<Make>("horon_raw_gloo")(rank, size, &store));
}

}  // namespace horon::bench
