#pragma once

#include <map>
#include <string>
#include <vector>

#include "horon/base/knob.h"
#include "horon/net/store.h"
#include "horon/train/settings.h"

// Before anything is built, all processes of a run say what they were given, and go on only if it
// is the same.
namespace horon::train {

// What a process brings.
struct Terms {
  Given given;                                 // settings; what it was not given is rank 0's
  std::map<std::string, std::string> machine;  // what bits depend on: "LibTorch" -> "2.9, AVX2"
};

// "batch_size: 64 on rank 0, 32 on ranks 1 and 2": of each name that differs. Pure.
std::vector<std::string> disagreements(const std::vector<std::map<std::string, std::string>>& all);
// The same for settings. Of those that some rank was given: rank 0's value in `config`, the others'
// as given, or the default. Those of which each rank may have its own are passed over. Pure.
std::vector<std::string> disagreements(const std::vector<Terms>& all, const TrainConfig& config);

// The job's settings that ranks must share, each of which a process has: for Terms::given. Pure.
Given shared_settings(const Knobs& knobs);

// What all go on with: rank 0's settings, and of those that each may have of its own, what this one
// was given. Every process calls it, equally often. UsageError (exit code 11) on all ranks, naming
// what differs on which; machines that differ are an error if the reduction is exact, else
// `warning` on rank 0 says so. TimeoutError naming a rank that said nothing.
struct Agreement {
  TrainConfig config;
  std::string warning;
};
Agreement agree(Store& store, int rank, int size, const TrainConfig& config, const Terms& terms,
                Milliseconds timeout);

}  // namespace horon::train
