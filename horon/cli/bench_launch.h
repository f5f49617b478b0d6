#pragma once

#include <CLI/CLI.hpp>

#include "horon/cli/commands.h"

namespace horon::cli {

// `horon bench launch`: how long a job takes to start, against mpirun; and what it costs idle.
void add_bench_launch(CLI::App& bench, Globals& globals);

}  // namespace horon::cli
