#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "horon/data/dataset.h"

// Preprocessing recipes: what is done to an image between file and network.
namespace horon {

// How an image is brought to the output size.
enum class Geometry : uint8_t {
  kResize,             // resizes the whole image to the output size (no change if equal)
  kPadCrop,            // pads with `pad` black pixels, then a random crop of the output size
  kRandomResizedCrop,  // a random window, resized
  kRandomSideCrop,     // resizes the shorter side to a random length, then a random crop
  kSideCentreCrop,     // resizes the shorter side to `side_low`, then a centre crop
};
enum class Flip : uint8_t { kNone, kRandom, kAlternating };

// A preprocessing recipe. Levels are 0..255.
struct Recipe {
  std::string name;
  int height = 0;  // of the output
  int width = 0;
  Geometry geometry = Geometry::kResize;
  int pad = 0;
  float area_low = 0.08F;  // fraction of the image
  float area_high = 1.0F;
  float aspect_low = 0.75F;  // width over height
  float aspect_high = 4.0F / 3.0F;
  int attempts = 10;  // to find a window that fits; then the whole image
  int side_low = 0;
  int side_high = 0;
  Flip flip = Flip::kNone;  // left and right
  float brightness = 0.0F;  // adds a random value in [-brightness, brightness]
  float contrast_low = 1.0F;
  float contrast_high = 1.0F;
  int cutout = 0;             // side of a square that becomes 0
  bool standardises = false;  // mean 0, deviation 1 per image; else (level - mean) / deviation
  std::array<float, 3> mean = {0, 0, 0};
  std::array<float, 3> deviation = {1, 1, 1};
};

// "none", "cifar", "cifarnet", "official_cifar", "vgg", "official_resnet", "inception", "lenet";
// `training`: includes the random operations. UsageError for another name.
Recipe find_recipe(const std::string& name, bool training, int height, int width);
std::vector<std::string> recipe_names();
// The default recipe for such data, by height, width and channels (table in docs/data.md);
// info_with_size() determines the size if the files do not state it.
std::string usual_recipe(const DatasetInfo& info);
// The default side of the network's square input: the images' own if all have the same small size,
// else 224.
int usual_side(const DatasetInfo& info);

}  // namespace horon
