#pragma once

#include <memory>

#include "horon/data/dataset.h"

namespace horon {

// Data sets that need no files. Throws what open_dataset throws.
std::shared_ptr<Dataset> make_shapes10(const DatasetRequest& request);
std::shared_ptr<Dataset> make_synthetic(const DatasetRequest& request);

}  // namespace horon
