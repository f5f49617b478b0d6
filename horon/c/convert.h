#pragma once

#include "horon/c/job.h"

// Converts values of horon.h to those of the library; UsageError for invalid ones.
namespace horon::c {

DType dtype_of(int dtype);
Device device_of(int kind, int index);
NamedOptions options_of(const horon_options* given);

}  // namespace horon::c
