#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

// Pictures as bytes: JPEG and PNG files, and the pixels in them.
namespace horon {

// u8, row by row, channels together.
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

// Larger pictures are refused before anything is allocated for them.
constexpr int kMostSide = 8192;
constexpr uint64_t kMostPixels = 64U << 20;
// Error (exit code 12) for sizes beyond that, or of nothing.
void check_picture_size(uint64_t height, uint64_t width);
constexpr int kMostClasses = 1'000'000;

// All throw Error (exit code 12) with libjpeg's or libpng's reason for files that are damaged, cut
// (even where a decoder would fill in grey), too large, or something else. Colour comes out as RGB,
// whatever is in the file: grey, CMYK, YCCK, progressive, with a palette, 16 bits, transparent.

PictureSize jpeg_size(std::span<const uint8_t> file);
int jpeg_channels(std::span<const uint8_t> file);  // in the file: 1 is grey, 4 are inks
void decode_jpeg(std::span<const uint8_t> file, Picture& out);
// At least the pixels of `wanted` (which lies inside the picture), as decode_jpeg would give them;
// says which region came out. A file that is cut is refused whatever is wanted of it, as by
// decode_jpeg; other damage is seen only in what had to be decoded: the rows down to the region's
// last one. (To undo the coding of the others as well would cost 13 % of a random window.)
Region decode_jpeg_region(std::span<const uint8_t> file, const Region& wanted, Picture& out);
// Undoes the entropy coding and nothing else: the least that any decoder must do.
void read_jpeg_coefficients(std::span<const uint8_t> file);
std::string encode_jpeg(const Picture& picture, int quality = 95);

bool is_png(std::span<const uint8_t> file);
PictureSize png_size(std::span<const uint8_t> file);
// Pixels as they are stored: gamma changes nothing, transparency is dropped, of 16 bits the upper 8
// are taken.
void decode_png(std::span<const uint8_t> file, Picture& out);
std::string encode_png(const Picture& picture);

}  // namespace horon
