#include <csetjmp>
#include <cstdio>
// libjpeg's header wants the two above.
#include <gtest/gtest.h>
#include <jpeglib.h>

#include <cstdlib>
#include <random>

#include "horon/base/error.h"
#include "horon/data/image/augment.h"
#include "horon/data/image/jpeg.h"
#include "horon/data/image/png.h"

namespace horon {
namespace {

// Smooth, with some noise: compresses like a photograph.
Picture photograph(int height, int width, unsigned seed, int channels = 3) {
  std::mt19937 random(seed);
  Picture picture{height, width, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double wave = 110 + 70 * std::sin(x * 0.05 * (c + 1) + seed) * std::cos(y * 0.037) +
                            (x * y / 97 % 31);
        picture.pixels.push_back(static_cast<uint8_t>(
            std::clamp(wave + static_cast<double>(random() % 24), 0.0, 255.0)));
      }
    }
  }
  return picture;
}

struct JpegForm {
  bool progressive = false;
  J_COLOR_SPACE space = JCS_RGB;
  int horizontal = 2;  // of the luminance
  int vertical = 2;
  unsigned restart = 0;
};

std::string make_jpeg(const Picture& picture, const JpegForm& form) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(picture.width);
  info.image_height = static_cast<JDIMENSION>(picture.height);
  info.input_components = picture.channels;
  info.in_color_space = form.space;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  if (form.space == JCS_RGB) {
    info.comp_info[0].h_samp_factor = form.horizontal;
    info.comp_info[0].v_samp_factor = form.vertical;
  }
  info.restart_interval = form.restart;
  if (form.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<uint8_t*>(picture.pixels.data()) +
                   info.next_scanline * static_cast<size_t>(picture.width * picture.channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string out(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return out;
}

std::span<const uint8_t> span_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

double difference(const Picture& a, const Picture& b) {
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
  return sum / static_cast<double>(a.pixels.size());
}

TEST(Jpeg, EncodedImagesDecodeAgain) {
  const Picture picture = photograph(97, 131, 1);
  const std::string file = encode_jpeg(picture);
  EXPECT_EQ(jpeg_size(span_of(file)).width, 131);
  Picture back;
  decode_jpeg(span_of(file), back);
  EXPECT_EQ(back.height, 97);
  EXPECT_LT(difference(picture, back), 6.0);
}

TEST(Jpeg, EveryKindComesOutAsColour) {
  Picture back;
  decode_jpeg(span_of(make_jpeg(photograph(50, 60, 1, 1), {.space = JCS_GRAYSCALE})), back);
  ASSERT_EQ(back.pixels.size(), 50U * 60 * 3);
  const Picture grey = photograph(50, 60, 1, 1);
  double apart = 0;
  for (size_t i = 0; i < grey.pixels.size(); ++i) {
    ASSERT_EQ(back.pixels[3 * i], back.pixels[3 * i + 1]);
    ASSERT_EQ(back.pixels[3 * i], back.pixels[3 * i + 2]);
    apart += std::abs(back.pixels[3 * i] - grey.pixels[i]);
  }
  EXPECT_LT(apart / static_cast<double>(grey.pixels.size()), 6.0);
  decode_jpeg(span_of(make_jpeg(photograph(50, 60, 1), {.progressive = true})), back);
  EXPECT_LT(difference(photograph(50, 60, 1), back), 10.0);
  // No ink at all is white (Adobe's are inverted: 255).
  const Picture white{8, 8, 4, std::vector<uint8_t>(256, 255)};
  decode_jpeg(span_of(make_jpeg(white, {.space = JCS_CMYK})), back);
  EXPECT_GE(back.pixels[0], 254);
  const Picture black{8, 8, 4, std::vector<uint8_t>(256, 0)};
  decode_jpeg(span_of(make_jpeg(black, {.space = JCS_CMYK})), back);
  EXPECT_LE(back.pixels[0], 1);
}

// The region's pixels are those of the whole image, to the last bit, for every subsampling.
TEST(Jpeg, RegionsAreBitEqualToTheWhole) {
  std::mt19937 random(7);
  int cropped = 0;
  for (int i = 0; i < 300; ++i) {
    const int height = 40 + static_cast<int>(random() % 200);
    const int width = 40 + static_cast<int>(random() % 200);
    const JpegForm form{.progressive = i % 10 == 9,
                        .horizontal = 1 + static_cast<int>(random() % 2),
                        .vertical = 1 + static_cast<int>(random() % 2),
                        .restart = i % 7 == 0 ? 4U : 0U};
    const std::string file = make_jpeg(photograph(height, width, static_cast<unsigned>(i)), form);
    Picture whole;
    decode_jpeg(span_of(file), whole);
    Region wanted;
    wanted.width = 1 + static_cast<int>(random() % static_cast<unsigned>(width));
    wanted.height = 1 + static_cast<int>(random() % static_cast<unsigned>(height));
    wanted.x = static_cast<int>(random() % static_cast<unsigned>(width - wanted.width + 1));
    wanted.y = static_cast<int>(random() % static_cast<unsigned>(height - wanted.height + 1));
    Picture part;
    const Region got = decode_jpeg_region(span_of(file), wanted, part);
    cropped += got.width < width ? 1 : 0;
    ASSERT_LE(got.x, wanted.x);
    ASSERT_GE(got.x + got.width, wanted.x + wanted.width);
    for (int y = wanted.y; y < wanted.y + wanted.height; ++y) {
      for (int x = wanted.x; x < wanted.x + wanted.width; ++x) {
        for (int c = 0; c < 3; ++c)
          ASSERT_EQ(part.pixels[static_cast<size_t>(((y - got.y) * got.width + x - got.x) * 3 + c)],
                    whole.pixels[static_cast<size_t>((y * width + x) * 3 + c)])
              << "image " << i << " at " << x << ", " << y;
      }
    }
  }
  EXPECT_GT(cropped, 100);
  EXPECT_THROW(decode_jpeg_region(span_of(encode_jpeg(photograph(20, 20, 1))), {0, 0, 21, 5},
                                  *std::make_unique<Picture>()),
               UsageError);
}

// A comment, or what a camera writes, with a small image of its own in it.
std::string with_segment(const std::string& file, char marker, const std::string& payload) {
  const size_t length = payload.size() + 2;
  std::string segment = {'\xff', marker, static_cast<char>(length >> 8), static_cast<char>(length)};
  return file.substr(0, 2) + segment + payload + file.substr(2);
}

bool decodes(const std::string& file, Picture& out) {
  try {
    decode_jpeg(span_of(file), out);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kData) << error.what();
    return false;
  }
}
bool decodes_in(const std::string& file, const Region& region) {
  Picture out;
  try {
    decode_jpeg_region(span_of(file), region, out);
    return true;
  } catch (const UsageError&) {  // it lies outside
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kData) << error.what();
    return false;
  }
}

// Whatever is wanted of it: the first pixel as well as the last.
TEST(Jpeg, CutFilesAreRefusedAsAWholeAndInParts) {
  const Picture picture = photograph(48, 40, 3);
  const std::string plain = make_jpeg(picture, {});
  const std::vector<std::string> files = {
      plain, make_jpeg(picture, {.horizontal = 1, .vertical = 1, .restart = 2}),
      make_jpeg(picture, {.progressive = true}),
      make_jpeg(photograph(48, 40, 3, 1), {.space = JCS_GRAYSCALE}),
      with_segment(plain, '\xe1', "Exif" + make_jpeg(photograph(8, 8, 1), {}))};
  const std::vector<Region> regions = {{0, 0, 1, 1}, {3, 2, 20, 9}, {0, 40, 40, 8}};
  Picture out;
  for (size_t kind = 0; kind < files.size(); ++kind) {
    const std::string& good = files[kind];
    for (size_t cut = 0; cut <= good.size(); cut += cut < good.size() - 20 ? 3 : 1) {
      const std::string part = good.substr(0, cut);
      const bool whole = cut == good.size();
      ASSERT_EQ(decodes(part, out), whole) << "kind " << kind << ", cut at " << cut;
      for (const Region& region : regions)
        ASSERT_EQ(decodes_in(part, region), whole) << "kind " << kind << ", cut at " << cut;
      if (whole) continue;
      // As an interrupted transfer into a file of the right size leaves it.
      const std::string filled = part + std::string(good.size() - cut, '\0');
      ASSERT_FALSE(decodes(filled, out)) << cut;
      for (const Region& region : regions) ASSERT_FALSE(decodes_in(filled, region)) << cut;
    }
    EXPECT_TRUE(decodes(good + "something behind it", out));
    EXPECT_TRUE(decodes_in(good + "something behind it", regions[0]));
  }
}

TEST(Jpeg, WhatMustBeRefusedAndWhatMustDecode) {
  const std::string good = make_jpeg(photograph(64, 80, 3), {.restart = 2});
  Picture want;
  ASSERT_TRUE(decodes(good, want));
  const auto place = [&](const char* marker) {
    const size_t at = good.find(marker);
    EXPECT_NE(at, std::string::npos);
    return at;
  };
  const auto changed = [&](size_t at, char to) {
    std::string bad = good;
    EXPECT_NE(bad[at], to);
    bad[at] = to;
    return bad;
  };
  const size_t frame = place("\xff\xc0");
  const size_t huffman = place("\xff\xc4");
  const size_t scan = place("\xff\xda");
  const size_t restart = place("\xff\xd3");
  Picture out;
  for (const std::string& bad :
       {changed(0, 'x'), changed(1, 'x'), changed(frame + 4, 12), changed(frame + 9, 0),
        changed(huffman + 5, '\xff'), changed(huffman + 4, '\x7f'), changed(scan + 4, 9),
        changed(restart + 1, '\xd6'), changed(restart + 1, '\x01'),
        good.substr(0, scan - 2) + good.substr(scan),
        good.substr(0, restart) + good.substr(restart + 2),
        good.substr(0, restart - 12) + good.substr(restart)}) {
    EXPECT_FALSE(decodes(bad, out))
        << "differs at "
        << std::mismatch(bad.begin(), bad.end(), good.begin(), good.end()).first - bad.begin();
  }
  for (const std::string& fine : {with_segment(good, '\xfe', "a comment"),
                                  with_segment(good, '\xe5', std::string(300, '\xff')), good + good,
                                  changed(place("JFIF") + 9, 77)}) {
    EXPECT_TRUE(decodes(fine, out));
    EXPECT_EQ(out.pixels, want.pixels);
  }
}

// Any bytes: an error with its code or an image, and what is good as a whole is good in parts.
TEST(Jpeg, RandomDamageIsAnErrorOrAnImage) {
  const std::string good = make_jpeg(photograph(64, 80, 3), {.restart = 2});
  std::mt19937 random(11);
  int refused = 0;
  Picture out;
  for (int i = 0; i < 1000; ++i) {
    std::string bad = good;
    for (unsigned k = 0; k < 1 + i % 5U; ++k)
      bad[random() % bad.size()] = static_cast<char>(random());
    if (!decodes(bad, out)) {
      ++refused;
      decodes_in(bad, {5, 6, 7, 8});  // looks at less: may be good
      continue;
    }
    ASSERT_EQ(out.pixels.size(), static_cast<size_t>(out.height * out.width * 3));
    ASSERT_TRUE(decodes_in(bad, {0, 0, out.width, out.height})) << i;
    ASSERT_TRUE(decodes_in(bad, {out.width / 4, out.height / 4, 1, out.height / 2})) << i;
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 1000);
}

TEST(Jpeg, BombsAreRefusedBeforeMemoryIsTaken) {
  std::string bomb = make_jpeg(photograph(16, 16, 1), {});
  const size_t frame = bomb.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (size_t i = 5; i <= 8; ++i) bomb[frame + i] = '\xff';  // 65535 x 65535
  bomb[frame + 5] = bomb[frame + 7] = '\xfe';                // libjpeg's own limit is 65500
  Picture out;
  try {
    decode_jpeg(span_of(bomb), out);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sides up to 8192"), std::string::npos)
        << error.what();
  }
}

TEST(Png, EncodedImagesDecodeToTheSamePixels) {
  for (const int channels : {1, 3}) {
    const Picture picture = photograph(13, 17, 2, channels);
    const std::string file = encode_png(picture);
    EXPECT_TRUE(is_png(span_of(file)));
    EXPECT_EQ(png_size(span_of(file)).width, 17);
    Picture back;
    decode_png(span_of(file), back);
    ASSERT_EQ(back.height, 13);
    ASSERT_EQ(back.width, 17);
    for (size_t i = 0; i < 13 * 17; ++i)
      for (size_t c = 0; c < 3; ++c)
        ASSERT_EQ(back.pixels[3 * i + c], picture.pixels[channels == 1 ? i : 3 * i + c]);
  }
}

// Every byte of a PNG is covered by a checksum: what is needed for the pixels is refused when it is
// changed, the rest changes none of them. Every cut is found out.
TEST(Png, EveryChangedByteIsRefusedOrHarmless) {
  const std::string file = encode_png(photograph(13, 17, 2));
  Picture want;
  decode_png(span_of(file), want);
  const auto decodes_to = [](const std::string& bytes, Picture& out) {
    try {
      decode_png(span_of(bytes), out);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kData);
      return false;
    }
  };
  std::vector<bool> is_needed(file.size(), true);  // by the chunks' names: capitals
  for (size_t at = 8; at + 8 <= file.size();) {
    const size_t length = static_cast<size_t>(static_cast<uint8_t>(file[at + 2])) << 8 |
                          static_cast<uint8_t>(file[at + 3]);
    for (size_t i = at; i < at + 12 + length; ++i) is_needed[i] = file[at + 4] < 'a';
    at += 12 + length;
  }
  Picture out;
  for (size_t at = 0; at < file.size(); ++at) {
    for (const int flip : {0x01, 0x40, 0xff}) {
      std::string bad = file;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      const bool good = decodes_to(bad, out);
      ASSERT_FALSE(good && is_needed[at]) << at;
      ASSERT_TRUE(!good || out.pixels == want.pixels) << at;
    }
    ASSERT_FALSE(decodes_to(file.substr(0, at), out)) << at;
  }
}

// Decoding only what is needed changes no bit of what comes out.
TEST(Augmenters, PartsAndWholesGiveTheSameBits) {
  const Recipe recipe = find_recipe("official_resnet", true, 64, 64);
  Augmenter parts(recipe, {}, 3);
  Augmenter wholes(recipe, {}, 3);
  wholes.set_decodes_whole(true);
  std::vector<float> a(3 * 64 * 64);
  std::vector<float> b(3 * 64 * 64);
  for (uint64_t sample = 0; sample < 100; ++sample) {
    const std::string file = make_jpeg(photograph(150, 170, static_cast<unsigned>(sample)), {});
    const Record record{span_of(file), PixelForm::kJpeg, 0, 0, 3, 0};
    parts.apply(record, 1, sample, a.data());
    wholes.apply(record, 1, sample, b.data());
    ASSERT_EQ(a, b) << sample;
  }
}

// The quick way of small images gives the bits of the general one.
TEST(Augmenters, PlanesAndPixelsGiveTheSameBits) {
  Recipe recipe = find_recipe("cifar", true, 32, 32);
  recipe.cutout = 6;
  for (const int side : {32, 30, 40}) {
    const Picture picture = photograph(side, side, 5);
    std::vector<uint8_t> planes;
    for (size_t c = 0; c < 3; ++c)
      for (size_t i = c; i < picture.pixels.size(); i += 3) planes.push_back(picture.pixels[i]);
    Augmenter quick(recipe, {}, 3);
    Augmenter general(recipe, {PixelLayout::kNhwc, PixelType::kF32, 3}, 3);
    std::vector<float> a(3072);
    std::vector<float> b(3072);
    std::vector<float> c(3072);
    for (uint64_t sample = 0; sample < 200; ++sample) {
      quick.apply({planes, PixelForm::kChw, side, side, 3, 0}, 1, sample, a.data());
      quick.apply({picture.pixels, PixelForm::kHwc, side, side, 3, 0}, 1, sample, b.data());
      general.apply({picture.pixels, PixelForm::kHwc, side, side, 3, 0}, 1, sample, c.data());
      ASSERT_EQ(a, b) << sample;
      for (size_t i = 0; i < 1024; ++i)
        for (size_t k = 0; k < 3; ++k) ASSERT_EQ(a[k * 1024 + i], c[3 * i + k]) << sample;
    }
  }
}

}  // namespace
}  // namespace horon
