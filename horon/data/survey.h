#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "horon/data/dataset.h"
#include "horon/data/image/picture.h"

// Inspection of a whole data set: verification, statistics, contact sheet.
namespace horon {

// The common size of all images; nothing if two differ. If the set does not state it, reads the
// headers of up to 1024 images, evenly spread over the set (so the same ones on every rank), until
// two differ. Skips damaged ones.
std::optional<PictureSize> common_size(const Dataset& set);
// set.info(), with the common size if there is one.
DatasetInfo info_with_size(const Dataset& set);

// The result of verify_dataset().
struct VerifyReport {
  uint64_t samples = 0;
  uint64_t bad = 0;   // samples
  uint64_t lost = 0;  // truncated or damaged ends of files
  uint64_t duplicates = 0;
  std::vector<std::string> problems;  // the first 20
};
// Reads and decodes everything, with checksums.
//
//   const VerifyReport report = verify_dataset(*set, 4, [](uint64_t, uint64_t) {});
//   for (const std::string& problem : report.problems) std::puts(problem.c_str());
VerifyReport verify_dataset(const Dataset& set, int threads,
                            const std::function<void(uint64_t done, uint64_t total)>& progress);

// The result of measure_dataset(); mean and deviation per channel, in levels 0..255.
struct Statistics {
  uint64_t samples = 0;
  std::array<double, 3> mean = {};
  std::array<double, 3> deviation = {};
  std::vector<uint64_t> histogram;  // samples of each class
  uint64_t smallest_side = 0;
  uint64_t largest_side = 0;
};
Statistics measure_dataset(const Dataset& set, int threads,
                           const std::function<void(uint64_t done, uint64_t total)>& progress);

// An image of `columns` x `rows` samples, `side` pixels each; `recipe`: as the network's input
// (levels), empty: unchanged.
Picture contact_sheet(const Dataset& set, int columns, int rows, int side,
                      const std::string& recipe, uint64_t seed);

}  // namespace horon
