#include "horon/data/image/jpeg.h"

#include <csetjmp>
#include <cstdio>
// libjpeg's header needs the two above.
#include <fmt/format.h>
#include <jpeglib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "horon/base/error.h"

namespace horon {
namespace {

// libjpeg's own handler calls exit(). This one jumps back; a warning (data that ends too early,
// invalid bytes) is an error as well.
struct Trouble {
  jpeg_error_mgr manager = {};
  jmp_buf back = {};
  char reason[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* trouble = reinterpret_cast<Trouble*>(info->err);
  info->err->format_message(info, trouble->reason);
  longjmp(trouble->back, 1);
}

void on_message(j_common_ptr info, int level) {
  if (level < 0) on_error(info);
}

void no_output(j_common_ptr) {}

void prepare(Trouble& trouble, jpeg_common_struct& info) {
  info.err = jpeg_std_error(&trouble.manager);
  trouble.manager.error_exit = on_error;
  trouble.manager.emit_message = on_message;
  trouble.manager.output_message = no_output;
}

[[noreturn]] void fail(const Trouble& trouble) {
  throw Error(fmt::format("JPEG: {}", trouble.reason), ExitCode::kData);
}

struct Decoder {
  jpeg_decompress_struct info = {};
  Trouble trouble;
  Decoder() {
    prepare(trouble, *reinterpret_cast<jpeg_common_struct*>(&info));
    if (setjmp(trouble.back) != 0) fail(trouble);
    jpeg_create_decompress(&info);
    // Limit of the memory for coefficients; beyond it libjpeg would use a file, which is disabled.
    info.mem->max_memory_to_use = 1L << 30;
  }
  ~Decoder() { jpeg_destroy_decompress(&info); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
};

// Reads the header and selects RGB (or CMYK) output.
void read_header(Decoder& decoder, std::span<const uint8_t> file) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.trouble.back) != 0) fail(decoder.trouble);
  jpeg_mem_src(&info, file.data(), file.size());
  jpeg_read_header(&info, TRUE);
  const bool inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = inks ? JCS_CMYK : JCS_RGB;
}

bool has_inks(const jpeg_decompress_struct& info) { return info.out_color_space == JCS_CMYK; }

// Rows [first, first + rows) into memory; no C++ object is alive across the jumps.
void read_rows(Decoder& decoder, const Region& wanted, uint8_t* to, size_t row_bytes) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.trouble.back) != 0) fail(decoder.trouble);
  if (wanted.y > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(wanted.y));
  for (int row = 0; row < wanted.height; ++row) {
    JSAMPROW at = to + static_cast<size_t>(row) * row_bytes;
    jpeg_read_scanlines(&info, &at, 1);
  }
}

void start(Decoder& decoder) {
  if (setjmp(decoder.trouble.back) != 0) fail(decoder.trouble);
  jpeg_start_decompress(&decoder.info);
}

void crop(Decoder& decoder, JDIMENSION& x, JDIMENSION& width) {
  if (setjmp(decoder.trouble.back) != 0) fail(decoder.trouble);
  jpeg_crop_scanline(&decoder.info, &x, &width);
}

// The end of the file tells whether it was whole.
void finish(Decoder& decoder) {
  if (setjmp(decoder.trouble.back) != 0) fail(decoder.trouble);
  jpeg_finish_decompress(&decoder.info);
}

// Inverted inks (as Adobe writes them) to light.
void inks_to_light(const std::vector<uint8_t>& inks, bool inverted, std::vector<uint8_t>& out) {
  out.resize(inks.size() / 4 * 3);
  for (size_t i = 0, o = 0; i + 3 < inks.size(); i += 4, o += 3) {
    const unsigned black = inverted ? inks[i + 3] : 255U - inks[i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const unsigned ink = inverted ? inks[i + c] : 255U - inks[i + c];
      out[o + c] = static_cast<uint8_t>((ink * black + 127) / 255);
    }
  }
}

void take_pixels(Decoder& decoder, const Region& region, Picture& out) {
  const size_t channels = has_inks(decoder.info) ? 4 : 3;
  const size_t row_bytes = static_cast<size_t>(region.width) * channels;
  out.height = region.height;
  out.width = region.width;
  out.channels = 3;
  if (channels == 3) {
    out.pixels.resize(row_bytes * static_cast<size_t>(region.height));
    return read_rows(decoder, region, out.pixels.data(), row_bytes);
  }
  std::vector<uint8_t> inks(row_bytes * static_cast<size_t>(region.height));
  read_rows(decoder, region, inks.data(), row_bytes);
  inks_to_light(inks, decoder.info.saw_Adobe_marker != 0, out.pixels);
}

}  // namespace

PictureSize jpeg_size(std::span<const uint8_t> file) {
  Decoder decoder;
  read_header(decoder, file);
  const PictureSize size{static_cast<int>(decoder.info.image_height),
                         static_cast<int>(decoder.info.image_width)};
  check_picture_size(decoder.info.image_height, decoder.info.image_width);
  return size;
}

int jpeg_channels(std::span<const uint8_t> file) {
  Decoder decoder;
  read_header(decoder, file);
  return decoder.info.num_components;
}

void decode_jpeg(std::span<const uint8_t> file, Picture& out) {
  Decoder decoder;
  read_header(decoder, file);
  check_picture_size(decoder.info.image_height, decoder.info.image_width);
  start(decoder);
  take_pixels(decoder,
              {0, 0, static_cast<int>(decoder.info.output_width),
               static_cast<int>(decoder.info.output_height)},
              out);
  finish(decoder);
}

void read_jpeg_coefficients(std::span<const uint8_t> file) {
  Decoder decoder;
  read_header(decoder, file);
  check_picture_size(decoder.info.image_height, decoder.info.image_width);
  if (setjmp(decoder.trouble.back) != 0) fail(decoder.trouble);
  jpeg_read_coefficients(&decoder.info);
}

namespace {

// What a decoder that stops early does not see: whether the file goes on to its end marker. `at`:
// where the coded bytes begin. In them 0xff is followed by 0, or is a restart marker.
void check_end(std::span<const uint8_t> file, size_t at) {
  constexpr uint8_t kEnd = 0xd9;
  constexpr uint8_t kScan = 0xda;
  while (at < file.size()) {
    const void* found = std::memchr(file.data() + at, 0xff, file.size() - at);
    if (found == nullptr) break;
    at = static_cast<size_t>(static_cast<const uint8_t*>(found) - file.data());
    while (at < file.size() && file[at] == 0xff) ++at;
    if (at >= file.size()) break;
    const uint8_t marker = file[at++];
    if (marker == kEnd) return;
    if (marker == kScan) throw Error("JPEG: a second scan where none may be", ExitCode::kData);
    if (marker == 0 || (marker >= 0xd0 && marker <= 0xd7)) continue;
    if (at + 2 > file.size()) break;
    at += static_cast<size_t>(file[at] << 8 | file[at + 1]);  // a comment or the like
  }
  throw Error("JPEG: Premature end of JPEG file", ExitCode::kData);
}

}  // namespace

Region decode_jpeg_region(std::span<const uint8_t> file, const Region& wanted, Picture& out) {
  Decoder decoder;
  read_header(decoder, file);
  const int height = static_cast<int>(decoder.info.image_height);
  const int width = static_cast<int>(decoder.info.image_width);
  check_picture_size(decoder.info.image_height, decoder.info.image_width);
  if (wanted.x < 0 || wanted.y < 0 || wanted.width < 1 || wanted.height < 1 ||
      wanted.x + wanted.width > width || wanted.y + wanted.height > height)
    throw UsageError("a region outside the picture");
  // Of several scans everything is decoded anyway.
  if (jpeg_has_multiple_scans(&decoder.info) != 0) {
    start(decoder);
    take_pixels(decoder, {0, 0, width, height}, out);
    finish(decoder);
    return {0, 0, width, height};
  }
  check_end(file, file.size() - decoder.info.src->bytes_in_buffer);
  start(decoder);
  // Colour is interpolated from neighbours: a block more on each side makes the edges the same.
  const int block = decoder.info.max_h_samp_factor * DCTSIZE;
  auto x = static_cast<JDIMENSION>(std::max(0, wanted.x - block));
  const int right = std::min(width, wanted.x + wanted.width + block);
  auto across = static_cast<JDIMENSION>(right - static_cast<int>(x));
  crop(decoder, x, across);
  const Region got{static_cast<int>(x), wanted.y, static_cast<int>(across), wanted.height};
  take_pixels(decoder, got, out);
  return got;
}

namespace {

struct Encoder {
  jpeg_compress_struct info = {};
  Trouble trouble;
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  Encoder() {
    prepare(trouble, *reinterpret_cast<jpeg_common_struct*>(&info));
    if (setjmp(trouble.back) != 0) fail(trouble);
    jpeg_create_compress(&info);
  }
  ~Encoder() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
};

void encode(Encoder& encoder, const Picture& picture, int quality) {
  jpeg_compress_struct& info = encoder.info;
  if (setjmp(encoder.trouble.back) != 0) fail(encoder.trouble);
  jpeg_mem_dest(&info, &encoder.bytes, &encoder.size);
  info.image_width = static_cast<JDIMENSION>(picture.width);
  info.image_height = static_cast<JDIMENSION>(picture.height);
  info.input_components = picture.channels;
  info.in_color_space = picture.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<uint8_t*>(picture.pixels.data()) +
                   static_cast<size_t>(info.next_scanline) * static_cast<size_t>(picture.width) *
                       static_cast<size_t>(picture.channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
}

}  // namespace

std::string encode_jpeg(const Picture& picture, int quality) {
  require(picture.channels == 1 || picture.channels == 3, "JPEG: 1 or 3 channels are written");
  Encoder encoder;
  encode(encoder, picture, quality);
  return {reinterpret_cast<const char*>(encoder.bytes), encoder.size};
}

}  // namespace horon
