#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "horon/data/image/picture.h"

// JPEG files.
namespace horon {

// All throw Error (exit code 12) with libjpeg's reason for files that are damaged, truncated (even
// where the decoder would fill in grey), too large, or not JPEG. Colour is returned as RGB,
// whatever the file contains: grey, CMYK, YCCK, progressive. Thread-safe.

PictureSize jpeg_size(std::span<const uint8_t> file);
int jpeg_channels(std::span<const uint8_t> file);  // in the file: 1 is grey, 4 is CMYK or YCCK
void decode_jpeg(std::span<const uint8_t> file, Picture& out);
// Decodes at least the pixels of `wanted` (inside the image), identical to those of decode_jpeg;
// returns the decoded region. A truncated file is refused whatever region is wanted, as by
// decode_jpeg; other damage is detected only in the decoded rows, which are those down to the
// region's last one. (Entropy-decoding the remaining rows would cost 13 % for a random window.)
Region decode_jpeg_region(std::span<const uint8_t> file, const Region& wanted, Picture& out);
// Only entropy-decodes: the minimum work of any decoder; for benchmarks.
void read_jpeg_coefficients(std::span<const uint8_t> file);
std::string encode_jpeg(const Picture& picture, int quality = 95);

}  // namespace horon
