#pragma once

#include <memory>

#include "horon/data/dataset.h"

namespace horon {

// TFRecord files of tf.Example as a data set. Throws what open_dataset throws.
std::shared_ptr<Dataset> open_tfrecord(const DatasetRequest& request);

}  // namespace horon
