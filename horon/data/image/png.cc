#include "horon/data/image/png.h"

#include <csetjmp>
#include <cstdio>
// libpng's error handling needs the first of them.
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "horon/base/error.h"

namespace horon {
namespace {

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const uint8_t> left;
  char reason[128] = {};
  jmp_buf back = {};

  explicit Reader(std::span<const uint8_t> file) : left(file) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    info = png != nullptr ? png_create_info_struct(png) : nullptr;
    if (info == nullptr) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      throw IoError("PNG: no memory");
    }
    png_set_read_fn(png, this, on_read);
  }
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  [[noreturn]] void fail() const { throw Error(fmt::format("PNG: {}", reason), ExitCode::kData); }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp what) {
    auto* self = static_cast<Reader*>(png_get_error_ptr(png));
    std::snprintf(self->reason, sizeof(self->reason), "%s", what);
    longjmp(self->back, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}  // of what is not needed for the pixels
  static void on_read(png_structp png, png_bytep to, size_t count) {
    auto* self = static_cast<Reader*>(png_get_io_ptr(png));
    if (count > self->left.size()) png_error(png, "the file is cut off");
    std::memcpy(to, self->left.data(), count);
    self->left = self->left.subspan(count);
  }
};

// No C++ object is alive across the jumps of these three.
PictureSize read_header(Reader& reader) {
  if (setjmp(reader.back) != 0) reader.fail();
  png_set_user_limits(reader.png, kMostSide, kMostSide);
  png_read_info(reader.png, reader.info);
  return {static_cast<int>(png_get_image_height(reader.png, reader.info)),
          static_cast<int>(png_get_image_width(reader.png, reader.info))};
}

// RGB of 8 bits: palettes looked up, few bits spread, of 16 bits the upper 8, grey three times.
// What is transparent has the colour that is stored for it; gamma is left alone.
size_t ask_for_colour(Reader& reader) {
  if (setjmp(reader.back) != 0) reader.fail();
  const int type = png_get_color_type(reader.png, reader.info);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(reader.png);
  if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(reader.png);
  png_set_strip_16(reader.png);
  png_set_strip_alpha(reader.png);
  if ((type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(reader.png);
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  return png_get_rowbytes(reader.png, reader.info);
}

void read_rows(Reader& reader, png_bytepp rows) {
  if (setjmp(reader.back) != 0) reader.fail();
  png_read_image(reader.png, rows);
  png_read_end(reader.png, nullptr);  // whether it is whole
}

struct Image {  // that is written
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

PictureSize png_size(std::span<const uint8_t> file) {
  Reader reader(file);
  const PictureSize size = read_header(reader);
  check_picture_size(static_cast<uint64_t>(size.height), static_cast<uint64_t>(size.width));
  return size;
}

void decode_png(std::span<const uint8_t> file, Picture& out) {
  Reader reader(file);
  const PictureSize size = read_header(reader);
  check_picture_size(static_cast<uint64_t>(size.height), static_cast<uint64_t>(size.width));
  const size_t row_bytes = ask_for_colour(reader);
  if (row_bytes != static_cast<size_t>(size.width) * 3)
    throw Error("PNG: an unknown kind of pixels", ExitCode::kData);
  out.height = size.height;
  out.width = size.width;
  out.channels = 3;
  out.pixels.resize(row_bytes * static_cast<size_t>(size.height));
  std::vector<png_bytep> rows(static_cast<size_t>(size.height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = out.pixels.data() + y * row_bytes;
  read_rows(reader, rows.data());
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
