#pragma once

#include <string>

#include "horon/bench/record.h"

namespace horon::bench {

// Options of `horon bench input`.
struct InputOptions {
  bool quick = false;
  std::string peers;  // a Python with torch and tensorflow; empty: no peers
  std::string peer_script = "benchmarks/peers/input_peers.py";
};

// Measures decoding, reading and small images, and compares them with other methods and programs.
Results run_input(const InputOptions& options);

}  // namespace horon::bench
