#include "horon/data/image/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "horon/base/error.h"
#include "horon/data/order.h"
#include "horon/data/random.h"

namespace horon {
namespace {

// A crop of `out` pixels from an image that is resized to `scaled`.
Axis axis_of_crop(int source, int scaled, int first) {
  const float step = static_cast<float>(source) / static_cast<float>(scaled);
  return {static_cast<float>(first) * step, step, 0, source - 1};
}

Axis axis_of_window(int first, int length, int out) {
  return {static_cast<float>(first), static_cast<float>(length) / static_cast<float>(out), first,
          first + length - 1};
}

Region choose_window(const Recipe& recipe, PictureSize size, Draws& draws) {
  const float area = static_cast<float>(size.height) * static_cast<float>(size.width);
  for (int attempt = 0; attempt < recipe.attempts; ++attempt) {
    const float wanted = area * draws.between(recipe.area_low, recipe.area_high);
    const float aspect = draws.between(recipe.aspect_low, recipe.aspect_high);
    const int width = static_cast<int>(std::lround(std::sqrt(wanted * aspect)));
    const int height = static_cast<int>(std::lround(std::sqrt(wanted / aspect)));
    if (width < 1 || height < 1 || width > size.width || height > size.height) continue;
    const int x = static_cast<int>(draws.below(static_cast<uint32_t>(size.width - width + 1)));
    const int y = static_cast<int>(draws.below(static_cast<uint32_t>(size.height - height + 1)));
    return {x, y, width, height};
  }
  return {0, 0, size.width, size.height};
}

// The shorter side becomes `side`, the other one keeps the proportions; at least the output's size.
PictureSize scaled_to(const Recipe& recipe, PictureSize size, int side) {
  const double factor = static_cast<double>(side) / std::min(size.height, size.width);
  return {std::max(recipe.height, static_cast<int>(std::lround(size.height * factor))),
          std::max(recipe.width, static_cast<int>(std::lround(size.width * factor)))};
}

void choose_geometry(const Recipe& recipe, PictureSize size, Draws draws, Choices& choices) {
  switch (recipe.geometry) {
    case Geometry::kResize:
      choices.x = axis_of_window(0, size.width, recipe.width);
      choices.y = axis_of_window(0, size.height, recipe.height);
      return;
    case Geometry::kPadCrop: {
      const int room_x = size.width + 2 * recipe.pad - recipe.width;
      const int room_y = size.height + 2 * recipe.pad - recipe.height;
      if (room_x < 0 || room_y < 0)
        throw Error(fmt::format("an image of {} x {} is too small for crops of {} x {}", size.width,
                                size.height, recipe.width, recipe.height),
                    ExitCode::kData);
      const int x = static_cast<int>(draws.below(static_cast<uint32_t>(room_x + 1))) - recipe.pad;
      const int y = static_cast<int>(draws.below(static_cast<uint32_t>(room_y + 1))) - recipe.pad;
      choices.padded = {x, y, recipe.width, recipe.height};
      return;
    }
    case Geometry::kRandomResizedCrop: {
      const Region window = choose_window(recipe, size, draws);
      choices.x = axis_of_window(window.x, window.width, recipe.width);
      choices.y = axis_of_window(window.y, window.height, recipe.height);
      return;
    }
    case Geometry::kRandomSideCrop:
    case Geometry::kSideCentreCrop: {
      const bool random = recipe.geometry == Geometry::kRandomSideCrop;
      const int side = random
                           ? recipe.side_low + static_cast<int>(draws.below(static_cast<uint32_t>(
                                                   recipe.side_high - recipe.side_low + 1)))
                           : recipe.side_low;
      const PictureSize scaled = scaled_to(recipe, size, side);
      const int room_x = scaled.width - recipe.width;
      const int room_y = scaled.height - recipe.height;
      const int x =
          random ? static_cast<int>(draws.below(static_cast<uint32_t>(room_x + 1))) : room_x / 2;
      const int y =
          random ? static_cast<int>(draws.below(static_cast<uint32_t>(room_y + 1))) : room_y / 2;
      choices.x = axis_of_crop(size.width, scaled.width, x);
      choices.y = axis_of_crop(size.height, scaled.height, y);
      return;
    }
  }
}

Range range_of(const Axis& axis, int out) {
  const auto at = [&](int j) {
    const float place = axis.origin + (static_cast<float>(j) + 0.5F) * axis.step - 0.5F;
    return std::clamp(static_cast<int>(std::floor(place)), axis.low, axis.high);
  };
  return {static_cast<uint64_t>(at(0)),
          static_cast<uint64_t>(std::min(at(out - 1) + 1, axis.high)) + 1};
}

}  // namespace

Choices choose(const Recipe& recipe, PictureSize size, uint64_t seed, uint64_t epoch,
               uint64_t sample) {
  Choices choices;
  choose_geometry(recipe, size, Draws(seed, epoch, sample, kDrawGeometry), choices);
  if (recipe.flip == Flip::kRandom) choices.flip = Draws(seed, epoch, sample, kDrawFlip).coin();
  if (recipe.flip == Flip::kAlternating)
    choices.flip = Draws(seed, 0, sample, kDrawFlip).coin() != (epoch % 2 == 1);
  if (recipe.brightness > 0 || recipe.contrast_low != 1.0F || recipe.contrast_high != 1.0F) {
    Draws draws(seed, epoch, sample, kDrawColour);
    choices.brightness = draws.between(-recipe.brightness, recipe.brightness);
    choices.contrast = draws.between(recipe.contrast_low, recipe.contrast_high);
  }
  if (recipe.cutout > 0) {
    Draws draws(seed, epoch, sample, kDrawCutout);
    const int x =
        static_cast<int>(draws.below(static_cast<uint32_t>(recipe.width))) - recipe.cutout / 2;
    const int y =
        static_cast<int>(draws.below(static_cast<uint32_t>(recipe.height))) - recipe.cutout / 2;
    const int left = std::max(x, 0);
    const int top = std::max(y, 0);
    choices.cutout = {left, top, std::min(x + recipe.cutout, recipe.width) - left,
                      std::min(y + recipe.cutout, recipe.height) - top};
  }
  return choices;
}

Region needed_region(const Recipe& recipe, const Choices& choices, PictureSize size) {
  if (recipe.geometry == Geometry::kPadCrop) return {0, 0, size.width, size.height};
  const Range x = range_of(choices.x, recipe.width);
  const Range y = range_of(choices.y, recipe.height);
  return {static_cast<int>(x.first), static_cast<int>(y.first), static_cast<int>(x.size()),
          static_cast<int>(y.size())};
}

}  // namespace horon
