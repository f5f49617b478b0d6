#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horon/data/dataset.h"

namespace horon {

// Samples in memory, one after the other: labels and pixels separately.
//
//   PackedPictures two{{"mine", "train", 32, 32, 3, 10, {}}, PixelForm::kHwc};
//   two.pixels.resize(2 * 32 * 32 * 3);
//   two.labels = {0, 1};
//   const auto set = make_packed(std::move(two));
struct PackedPictures {
  DatasetInfo info;
  PixelForm form = PixelForm::kHwc;
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
  std::vector<std::pair<uint64_t, std::string>> files;  // first index of each, for where()
};
std::shared_ptr<Dataset> make_packed(PackedPictures pictures);

}  // namespace horon
