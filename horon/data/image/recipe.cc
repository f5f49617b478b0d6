#include "horon/data/image/recipe.h"

#include <algorithm>
#include <functional>

#include "horon/base/registry.h"

namespace horon {
namespace {

constexpr std::array<float, 3> kImagenetMean = {123.68F, 116.78F, 103.94F};
constexpr std::array<float, 3> kCifarMean = {125.3F, 123.0F, 113.9F};
constexpr std::array<float, 3> kCifarDeviation = {63.0F, 62.1F, 66.7F};
constexpr std::array<float, 3> kHalf = {127.5F, 127.5F, 127.5F};

using Maker = std::function<void(bool training, Recipe& recipe)>;

void pad_crop_flip(bool training, Recipe& recipe) {
  if (!training) return;
  recipe.geometry = Geometry::kPadCrop;
  recipe.pad = 4;
  recipe.flip = Flip::kRandom;
}

// Evaluation of ImageNet's: 256 for an output of 224.
void centre(Recipe& recipe) {
  recipe.geometry = Geometry::kSideCentreCrop;
  recipe.side_low = std::max(recipe.height, recipe.width) * 256 / 224;
}

void make_random_resized(bool training, Recipe& recipe) {
  if (!training) return centre(recipe);
  recipe.geometry = Geometry::kRandomResizedCrop;
  recipe.area_low = 0.05F;
  recipe.aspect_high = 1.33F;
  recipe.attempts = 100;
  recipe.flip = Flip::kRandom;
}

const Registry<Maker>& all_recipes() {
  static const Registry<Maker> kRegistry = [] {
    Registry<Maker> all("pre-processing");
    all.add("none", [](bool, Recipe&) {});
    all.add("cifar", [](bool training, Recipe& recipe) {
      pad_crop_flip(training, recipe);
      recipe.mean = kCifarMean;
      recipe.deviation = kCifarDeviation;
    });
    all.add("official_cifar", [](bool training, Recipe& recipe) {
      pad_crop_flip(training, recipe);
      recipe.standardises = true;
    });
    all.add("cifarnet", [](bool training, Recipe& recipe) {
      pad_crop_flip(training, recipe);
      recipe.standardises = true;
      if (!training) return;
      recipe.brightness = 63.0F;
      recipe.contrast_low = 0.2F;
      recipe.contrast_high = 1.8F;
    });
    all.add("vgg", [](bool training, Recipe& recipe) {
      recipe.mean = kImagenetMean;
      centre(recipe);
      if (!training) return;
      recipe.geometry = Geometry::kRandomSideCrop;
      recipe.side_high = 2 * recipe.side_low;
      recipe.flip = Flip::kRandom;
    });
    all.add("official_resnet", [](bool training, Recipe& recipe) {
      recipe.mean = kImagenetMean;
      make_random_resized(training, recipe);
    });
    all.add("inception", [](bool training, Recipe& recipe) {
      recipe.mean = kHalf;
      recipe.deviation = kHalf;
      make_random_resized(training, recipe);
      if (!training) return;
      recipe.brightness = 32.0F;
      recipe.contrast_low = 0.5F;
      recipe.contrast_high = 1.5F;
    });
    all.add("lenet", [](bool, Recipe& recipe) {
      recipe.mean = {128.0F, 128.0F, 128.0F};
      recipe.deviation = recipe.mean;
    });
    return all;
  }();
  return kRegistry;
}

}  // namespace

Recipe find_recipe(const std::string& name, bool training, int height, int width) {
  Recipe recipe;
  recipe.name = name;
  recipe.height = height;
  recipe.width = width;
  all_recipes().find(name)(training, recipe);
  return recipe;
}

std::vector<std::string> recipe_names() { return all_recipes().names(); }

namespace {
constexpr int kLargestSmall = 96;  // beyond it images are cut out of, as of ImageNet's
}

// A few pixels to and fro and a mirror image are harmless where an image shows a thing; of digits,
// and of images of hardly any pixels, they would make something else.
std::string usual_recipe(const DatasetInfo& info) {
  if (info.name == "mnist") return "lenet";
  const int longer = std::max(info.height, info.width);
  if (longer == 0 || longer > kLargestSmall) return "official_resnet";
  const bool like_cifar = info.height == info.width && info.height >= 24 && info.channels == 3;
  return like_cifar ? "cifar" : "none";
}

int usual_side(const DatasetInfo& info) {
  const int longer = std::max(info.height, info.width);
  return longer == 0 || longer > kLargestSmall ? 224 : longer;
}

}  // namespace horon
