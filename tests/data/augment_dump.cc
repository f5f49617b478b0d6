// One sample through the augmentation, for comparison with another implementation.
//   horon_augment_dump IN OUT RECIPE train|eval HEIGHT WIDTH SEED EPOCH SAMPLE nchw|nhwc
//   f32|f16|bf16|u8 [KEY=VALUE ...]
// IN: an .npy of u8 (H x W x 3), a .jpg or a .png. OUT: the raw bytes that come out. Prints the
// choices as JSON. Keys: cutout, flip (alternating), brightness, contrast_low, contrast_high.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/data/format/npy.h"
#include "horon/data/image/augment.h"
#include "horon/data/image/choices.h"
#include "horon/data/image/jpeg.h"
#include "horon/data/image/png.h"
#include "horon/file/file.h"

namespace {

using namespace horon;

struct Input {
  std::string bytes;
  Record record;
  PictureSize size;
};

Input load(const std::string& path) {
  Input input;
  input.bytes = file::read(path);
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(input.bytes.data()),
                                       input.bytes.size());
  if (path.ends_with(".npy")) {
    const NpyArray array = parse_npy(bytes, path);
    input.size = {static_cast<int>(array.shape.at(0)), static_cast<int>(array.shape.at(1))};
    input.record = {array.contents, PixelForm::kHwc, input.size.height, input.size.width, 3, 0};
    return input;
  }
  input.record = {bytes, is_png(bytes) ? PixelForm::kPng : PixelForm::kJpeg, 0, 0, 3, 0};
  Picture picture;
  is_png(bytes) ? decode_png(bytes, picture) : decode_jpeg(bytes, picture);
  input.size = {picture.height, picture.width};
  return input;
}

void change(Recipe& recipe, const std::string& setting) {
  const size_t equals = setting.find('=');
  const std::string key = setting.substr(0, equals);
  const std::string value = setting.substr(equals + 1);
  if (key == "cutout") recipe.cutout = std::stoi(value);
  if (key == "flip") recipe.flip = value == "alternating" ? Flip::kAlternating : Flip::kNone;
  if (key == "brightness") recipe.brightness = std::stof(value);
  if (key == "contrast_low") recipe.contrast_low = std::stof(value);
  if (key == "contrast_high") recipe.contrast_high = std::stof(value);
}

nlohmann::json describe(const Choices& choices) {
  const auto axis = [](const Axis& one) {
    return nlohmann::json(
        {{"origin", one.origin}, {"step", one.step}, {"low", one.low}, {"high", one.high}});
  };
  const auto region = [](const Region& one) {
    return nlohmann::json({one.x, one.y, one.width, one.height});
  };
  return {{"x", axis(choices.x)},
          {"y", axis(choices.y)},
          {"padded", region(choices.padded)},
          {"flip", choices.flip},
          {"brightness", choices.brightness},
          {"contrast", choices.contrast},
          {"cutout", region(choices.cutout)}};
}

int run(const std::vector<std::string>& arguments) {
  require(arguments.size() >= 11, "arguments: see the source");
  const Input input = load(arguments[0]);
  Recipe recipe = find_recipe(arguments[2], arguments[3] == "train", std::stoi(arguments[4]),
                              std::stoi(arguments[5]));
  for (size_t i = 11; i < arguments.size(); ++i) change(recipe, arguments[i]);
  const uint64_t seed = std::stoull(arguments[6]);
  const uint64_t epoch = std::stoull(arguments[7]);
  const uint64_t sample = std::stoull(arguments[8]);
  OutputForm form;
  form.layout = arguments[9] == "nhwc" ? PixelLayout::kNhwc : PixelLayout::kNchw;
  const std::map<std::string, PixelType> types = {{"f32", PixelType::kF32},
                                                  {"f16", PixelType::kF16},
                                                  {"bf16", PixelType::kBF16},
                                                  {"u8", PixelType::kU8}};
  form.type = types.at(arguments[10]);
  std::string out(bytes_of_sample(recipe, form), '\0');
  Augmenter(recipe, form, seed).apply(input.record, epoch, sample, out.data());
  file::write(arguments[1], out);
  std::cout << describe(choose(recipe, input.size, seed, epoch, sample)).dump() << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
