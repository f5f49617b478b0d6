#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/comm/channel.h"
#include "horon/comm/shared/region.h"

namespace horon::shared {

struct LocalOptions {
  size_t inline_bytes = kInlineBytes;
  std::string spin = "auto";
};

// Ranks as threads of one process: one backend for each. size 1 is the backend "self".
std::vector<std::unique_ptr<Backend>> make_local_backends(int size,
                                                          const LocalOptions& options = {});

}  // namespace horon::shared
