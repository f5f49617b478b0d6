#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/base/part.h"

namespace horon::train {

// Opens the trainer's part (libhoron_train.so) after LibTorch, which is searched in HORON_TORCH (a
// folder with lib/libtorch_cpu.so), in the cache of tools/install_libtorch.sh, and in the loader's
// path. UsageError that says how to fix it.
std::shared_ptr<Part> open_trainer(const std::vector<std::string>& part_folders);

}  // namespace horon::train
