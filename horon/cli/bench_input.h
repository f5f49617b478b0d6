#pragma once

#include "horon/cli/commands.h"

namespace horon::cli {

// `bench input`: decoding, reading, small pictures; against other ways and other programs.
void add_bench_input(CLI::App& bench);

}  // namespace horon::cli
