#pragma once

#include <string>

namespace horon::bench {

// Runs one training measurement, on each rank that was started for it, inside the trainer's part
// (called through train_door.cc). `plan` is JSON: "what" (scaling, wires, libtorch, input, exact,
// wrapped, overlap), "model", "batch" (per rank), "rounds", "threads", "out" (a file; rank 0 writes
// the times of each round to it, in seconds); "device", "dtype", "image_size", "classes" if they
// differ from cpu, f32, 32, 10.
void run_train_steps(const std::string& plan);

}  // namespace horon::bench
