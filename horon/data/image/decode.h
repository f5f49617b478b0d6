#pragma once

#include "horon/data/dataset.h"
#include "horon/data/image/picture.h"

namespace horon {

// Decodes any image to RGB (or grey if the data set is grey) pixels; Error (exit code 12).
void decode_record(const Record& record, Picture& out);

}  // namespace horon
