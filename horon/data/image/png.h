#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "horon/data/image/picture.h"

// PNG files.
namespace horon {

// All throw Error (exit code 12) with libpng's reason for files that are damaged, truncated, too
// large, or not PNG. Colour is returned as RGB, whatever the file contains: grey, palette, 16 bits,
// transparency. Thread-safe.

bool is_png(std::span<const uint8_t> file);
PictureSize png_size(std::span<const uint8_t> file);
// Pixels as stored: gamma is ignored, transparency dropped, 16-bit samples keep their upper 8 bits.
void decode_png(std::span<const uint8_t> file, Picture& out);
std::string encode_png(const Picture& picture);

}  // namespace horon
