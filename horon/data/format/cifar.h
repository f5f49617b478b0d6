#pragma once

#include <memory>

#include "horon/data/dataset.h"

namespace horon {

// CIFAR-10 and CIFAR-100 (binary or the python version), and MNIST. Throws what open_dataset
// throws.
std::shared_ptr<Dataset> open_cifar(const DatasetRequest& request, int classes);
std::shared_ptr<Dataset> open_mnist(const DatasetRequest& request);

}  // namespace horon
