#include <fmt/format.h>
#include <png.h>

#include <cstring>

#include "horon/base/error.h"
#include "horon/data/picture.h"

namespace horon {
namespace {

struct Image {
  png_image is = {};
  Image() { is.version = PNG_IMAGE_VERSION; }
  ~Image() { png_image_free(&is); }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  [[noreturn]] void fail() const {
    throw Error(fmt::format("PNG: {}", is.message), ExitCode::kData);
  }
};

}  // namespace

bool is_png(std::span<const uint8_t> file) {
  return file.size() >= 8 && png_sig_cmp(file.data(), 0, 8) == 0;
}

void decode_png(std::span<const uint8_t> file, Picture& out) {
  Image image;
  if (png_image_begin_read_from_memory(&image.is, file.data(), file.size()) == 0) image.fail();
  check_picture_size(image.is.height, image.is.width);

  image.is.format = PNG_FORMAT_RGB;
  out.height = static_cast<int>(image.is.height);
  out.width = static_cast<int>(image.is.width);
  out.channels = 3;
  out.pixels.resize(PNG_IMAGE_SIZE(image.is));
  const png_color behind = {0, 0, 0};  // what is transparent is black
  if (png_image_finish_read(&image.is, &behind, out.pixels.data(), 0, nullptr) == 0) image.fail();
  if (PNG_IMAGE_FAILED(image.is)) image.fail();
}

std::string encode_png(const Picture& picture) {
  require(picture.channels == 1 || picture.channels == 3, "PNG: 1 or 3 channels are written");
  Image image;
  image.is.width = static_cast<png_uint_32>(picture.width);
  image.is.height = static_cast<png_uint_32>(picture.height);
  image.is.format = picture.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  if (png_image_write_get_memory_size(image.is, size, 0, picture.pixels.data(), 0, nullptr) == 0)
    image.fail();
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&image.is, bytes.data(), &size, 0, picture.pixels.data(), 0,
                                nullptr) == 0)
    image.fail();
  bytes.resize(size);
  return bytes;
}

}  // namespace horon
