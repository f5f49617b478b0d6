#pragma once

#include <memory>
#include <string>
#include <vector>

#include "horon/data/dataset.h"

namespace horon {

// SPLIT/CLASS/*.jpg and *.png. Throws what open_dataset throws.
std::shared_ptr<Dataset> open_image_folder(const DatasetRequest& request);

// Reads labels.txt: "0: cat" or one name per line, in order. CorruptRecord for anything else, or a
// duplicate name.
std::vector<std::string> read_class_names(const std::string& path);

}  // namespace horon
