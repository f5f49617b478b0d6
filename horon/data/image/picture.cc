#include "horon/data/image/picture.h"

#include <fmt/format.h>

#include "horon/base/error.h"

namespace horon {

void check_picture_size(uint64_t height, uint64_t width) {
  if (height > 0 && width > 0 && height <= kMostSide && width <= kMostSide &&
      height * width <= kMostPixels)
    return;
  throw Error(fmt::format("an image of {} x {}: sides up to {} and {} pixels are read", width,
                          height, kMostSide, kMostPixels),
              ExitCode::kData);
}

}  // namespace horon
