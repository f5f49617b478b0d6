#pragma once

#include <map>
#include <memory>
#include <string>

#include "horon/data/dataset.h"

namespace horon {

// Opens a data set by its name. UsageError for unknown names and splits, NoSuchSplit for a missing
// one, IoError and CorruptRecord for files.
//
//   const auto train = open_dataset({.name = "cifar10", .folder = "cifar", .split = "train"});
//   std::printf("%lu samples\n", train->size());
std::shared_ptr<Dataset> open_dataset(const DatasetRequest& request);
// The names of all data sets, each with a one-line description.
std::map<std::string, std::string> dataset_names();

}  // namespace horon
