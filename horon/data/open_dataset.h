#pragma once

#include <map>
#include <memory>
#include <string>

#include "horon/data/dataset.h"

namespace horon {

// UsageError for unknown names and splits, NoSuchSplit for a missing one, IoError and CorruptRecord
// for files.
std::shared_ptr<Dataset> open_dataset(const DatasetRequest& request);
// name -> one-line description
std::map<std::string, std::string> dataset_names();

}  // namespace horon
