#pragma once

#include <memory>
#include <string>

#include "horon/comm/engine/channel.h"
#include "horon/comm/shared/shared_region.h"

namespace horon::shared {

// The backend over a region; `name` is "self", "local" or "shm"; `keep` lives as long as the
// backend.
std::unique_ptr<Backend> make_shared_backend(std::string name, std::shared_ptr<SharedRegion> region,
                                             std::shared_ptr<void> keep);

}  // namespace horon::shared
