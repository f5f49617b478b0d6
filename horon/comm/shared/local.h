#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/comm/engine/channel.h"
#include "horon/comm/shared/region.h"

namespace horon::shared {

// Settings of shared memory between threads.
struct LocalOptions {
  size_t inline_bytes = kInlineBytes;
  std::string spin = "auto";
};

// Ranks as threads of one process: returns one backend per rank. Size 1 is the backend "self".
std::vector<std::unique_ptr<Backend>> make_local_backends(int size,
                                                          const LocalOptions& options = {});

}  // namespace horon::shared
