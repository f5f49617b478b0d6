#pragma once

#include <map>
#include <string>
#include <vector>

#include "horon/net/compare.h"
#include "horon/net/store.h"
#include "horon/train/settings.h"

// Start-up check: before anything is built, the processes of a run compare their settings and
// continue only if these are equal.
namespace horon::train {

// What one process brings to the comparison.
struct Terms {
  Given given;  // settings given to it; rank 0 supplies the others
  std::map<std::string, std::string>
      platform;  // what result bits depend on: "LibTorch" -> "2.9, AVX2"
};

// Describes the differences, in the format of net/compare.h. For each setting that some rank was
// given: rank 0's value is taken from `config`, the others' is the given one or the default.
// Settings that may differ by rank are skipped. Pure.
std::vector<std::string> disagreements(const std::vector<Terms>& all, const TrainConfig& config);

// Compares the terms of all processes. Returns the settings to continue with: rank 0's, and this
// process's own for those that may differ by rank. Every process calls it, equally often.
// UsageError (exit code 11) on all ranks that names the differences and the ranks; different
// platforms are an error if the reduction is exact, otherwise a `warning` on rank 0. TimeoutError
// that names a rank that did not answer.
struct AgreedTerms {
  TrainConfig config;
  std::string warning;
};
AgreedTerms agree(Store& store, int rank, int size, const TrainConfig& config, const Terms& terms,
                  Milliseconds timeout);

}  // namespace horon::train
