#pragma once

#include <cstdint>
#include <vector>

// Images as pixels. Files of them: jpeg.h, png.h.
namespace horon {

// u8, row by row, channels interleaved
struct Picture {
  int height = 0;
  int width = 0;
  int channels = 3;
  std::vector<uint8_t> pixels;
};

// A rectangle of pixels.
struct Region {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
  bool operator==(const Region&) const = default;
};

struct PictureSize {
  int height = 0;
  int width = 0;
};

// Larger images are refused before memory is allocated.
constexpr int kMostSide = 8192;
constexpr uint64_t kMostPixels = 64U << 20;
// Error (exit code 12) for larger or empty sizes.
void check_picture_size(uint64_t height, uint64_t width);

}  // namespace horon
