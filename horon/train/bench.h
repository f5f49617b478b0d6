#pragma once

#include <string>

namespace horon::train {

// One measurement of training, by each rank that was started for it. `plan` is JSON: "what"
// (scaling, libtorch, input, exact), "model", "batch" (of a rank), "rounds", "threads", "out" (a
// file, written by rank 0 with the times of each round in seconds); "device", "dtype",
// "image_size", "classes" where they differ from cpu, f32, 32, 10.
void run_bench(const std::string& plan);

}  // namespace horon::train
