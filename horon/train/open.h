#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/base/part.h"

namespace horon::train {

// Opens the trainer's part (libhoron_train.so) after LibTorch, which is looked for in HORON_TORCH
// (a folder with lib/libtorch_cpu.so), in the cache of tools/install_libtorch.sh, and where the
// loader looks. UsageError that says what to do.
std::shared_ptr<Part> open_trainer(const std::vector<std::string>& part_folders);

}  // namespace horon::train
