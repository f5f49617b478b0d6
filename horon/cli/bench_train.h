#pragma once

#include "horon/cli/commands.h"

namespace horon::cli {

// `bench train`: scaling, cost over bare LibTorch, input, exact mode; PyTorch's DDP beside it.
void add_bench_train(CLI::App& bench, Globals& globals);

}  // namespace horon::cli
