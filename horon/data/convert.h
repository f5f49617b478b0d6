#pragma once

#include <array>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "horon/data/dataset.h"
#include "horon/data/picture.h"

namespace horon {

// Any picture as RGB (or grey where the data set is) pixels; Error (exit code 12).
void decode_record(const Record& record, Picture& out);

struct ConvertOptions {
  std::string
      format;  // "tfrecord", "tfrecord_raw" (image + label), "image_folder", "npy", "cifar10"
  std::string folder;
  std::string split = "train";
  int shards = 0;    // files of tfrecord; 0: one per ~1250 samples
  int quality = 95;  // of pictures that are not JPEG yet
  int threads = 1;   // what comes out does not depend on them
  std::function<void(uint64_t done, uint64_t total)> progress;
  std::stop_token stop;
};
// Writes all samples of a data set in another format. What an earlier, interrupted run has finished
// is kept: whole files, and the beginnings of those of records of one length (npy, cifar10). The
// files. UsageError for what does not fit into the format, or a folder with something else in it;
// CorruptRecord for damaged samples, or where some were lost.
std::vector<std::string> convert_dataset(const Dataset& from, const ConvertOptions& options);

struct VerifyReport {
  uint64_t samples = 0;
  uint64_t bad = 0;   // samples
  uint64_t lost = 0;  // ends of files that hold nobody knows how many
  uint64_t duplicates = 0;
  std::vector<std::string> problems;  // the first 20
};
// Reads and decodes everything.
VerifyReport verify_dataset(const Dataset& set, int threads,
                            const std::function<void(uint64_t done, uint64_t total)>& progress);

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

// `columns` x `rows` samples side by side, `side` pixels each; `recipe`: as they reach the network
// (levels), empty: as they are.
Picture contact_sheet(const Dataset& set, int columns, int rows, int side,
                      const std::string& recipe, uint64_t seed);

}  // namespace horon
