#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "horon/data/dataset.h"

namespace horon {

// Target format and folder.
struct ConvertOptions {
  std::string
      format;  // "tfrecord", "tfrecord_raw" (image + label), "image_folder", "npy", "cifar10"
  std::string folder;
  std::string split = "train";
  int files = 0;     // number of tfrecord files; 0: one per ~1250 samples
  int quality = 95;  // of images that are not JPEG yet
  int threads = 1;   // the output does not depend on them
  std::function<void(uint64_t done, uint64_t total)> progress;
  std::stop_token stop;
};
// Writes all samples of a data set in another format and returns the files. Keeps what an
// interrupted run has finished: whole files, and the beginnings of files with fixed record length
// (npy, cifar10). UsageError for samples that do not fit the format, or a folder with other
// contents; CorruptRecord for damaged or lost samples.
std::vector<std::string> convert_dataset(const Dataset& from, const ConvertOptions& options);

}  // namespace horon
