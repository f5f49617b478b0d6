#pragma once

#include <cstdint>

#include "horon/data/image/picture.h"
#include "horon/data/image/recipe.h"

// What a recipe does to one sample: all random decisions, and nothing else, are made here.
namespace horon {

// The `operation` of Draws(seed, epoch, sample, operation).
enum AugmentOperation : uint32_t {
  kDrawGeometry = 1,
  kDrawFlip = 2,
  kDrawColour = 3,
  kDrawCutout = 4
};

// Output pixel j of a row samples the source at origin + (j + 0.5) * step - 0.5, clamped to [low,
// high], with linear interpolation.
struct Axis {
  float origin = 0;
  float step = 1;
  int low = 0;
  int high = 0;
};
struct Choices {
  Axis x;
  Axis y;
  Region padded;  // kPadCrop: the crop's position in the image; outside is black
  bool flip = false;
  float brightness = 0;
  float contrast = 1;
  Region cutout;  // in the output; empty: none
};
// Pure. Draws in this order: geometry (area, aspect, x, y; or side, x, y; or x, y), flip (a coin),
// colour (brightness, contrast), cutout (centre x, y).
Choices choose(const Recipe& recipe, PictureSize size, uint64_t seed, uint64_t epoch,
               uint64_t sample);
// The source pixels that are needed.
Region needed_region(const Recipe& recipe, const Choices& choices, PictureSize size);

}  // namespace horon
