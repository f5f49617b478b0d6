#pragma once

#include <string>
#include <vector>

#include "horon/bench/record.h"

namespace horon::bench {

// Options of `horon bench train`.
struct TrainOptions {
  bool quick = false;
  std::string device = "cpu";  // or "cuda": a step on a GPU, compared with LibTorch's
  std::string peers;           // a Python with torch; empty: no peer
  std::string peer_script = "benchmarks/peers/ddp_peer.py";
};

// Measures training steps: scaling, overhead over bare LibTorch, input, exact mode; also PyTorch's
// DDP.
Results run_train(const TrainOptions& options, const Say& say);

// Runs one rank (`horon bench train-rank`) in the trainer's part: see train_rank.h. Returns the
// exit code. `folders`: where parts are. UsageError: the part does not load.
int run_train_rank(const std::string& plan, const std::vector<std::string>& folders);

}  // namespace horon::bench
