#pragma once

#include <CLI/CLI.hpp>

#include "horon/cli/commands.h"

namespace horon::cli {

// `horon bench runtime`: named operations and buckets, against one plain all-reduce of their size.
void add_bench_runtime(CLI::App& bench, Globals& globals);

}  // namespace horon::cli
