#pragma once

#include "horon/c/job.h"

// Values of horon.h as those of the library; UsageError for what is none.
namespace horon::c {

DType dtype_of(int dtype);
Device device_of(int kind, int index);
NamedOptions options_of(const horon_options* given);

}  // namespace horon::c
