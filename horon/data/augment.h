#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "horon/data/dataset.h"
#include "horon/data/picture.h"

// What is done to a picture between the file and the network. Deciding (choose) and doing (apply)
// are apart: choices follow from (seed, epoch, sample) alone.
namespace horon {

enum class Geometry : uint8_t {
  kResize,             // the whole picture to the output's size (no change where it has it)
  kPadCrop,            // `pad` black pixels around it, then a random crop of the output's size
  kRandomResizedCrop,  // a random window, resized
  kRandomSideCrop,     // shorter side to a random length, then a random crop
  kSideCentreCrop,     // shorter side to `side_low`, then the centre
};
enum class Flip : uint8_t { kNone, kRandom, kAlternating };

// A family of pre-processing. Levels are 0..255.
struct Recipe {
  std::string name;
  int height = 0;  // of what comes out
  int width = 0;
  Geometry geometry = Geometry::kResize;
  int pad = 0;
  float area_low = 0.08F;  // of the picture's
  float area_high = 1.0F;
  float aspect_low = 0.75F;  // width over height
  float aspect_high = 4.0F / 3.0F;
  int attempts = 10;  // to find a window that fits; then the whole picture
  int side_low = 0;
  int side_high = 0;
  Flip flip = Flip::kNone;  // left and right
  float brightness = 0.0F;  // added: up to so much, or less
  float contrast_low = 1.0F;
  float contrast_high = 1.0F;
  int cutout = 0;  // side of a square that becomes 0
  bool standardises =
      false;  // mean 0, deviation 1 of each picture; else (level - mean) / deviation
  std::array<float, 3> mean = {0, 0, 0};
  std::array<float, 3> deviation = {1, 1, 1};
};

// "none", "cifar", "cifarnet", "official_cifar", "vgg", "official_resnet", "inception", "lenet";
// `training`: with what is random. UsageError for another.
Recipe find_recipe(const std::string& name, bool training, int height, int width);
std::vector<std::string> recipe_names();
// The one that data of this kind is used to, by its height, width and channels (docs/data.md has
// the table); info_with_size() fills them in where the files do not say.
std::string usual_recipe(const DatasetInfo& info);
// The side of the square that networks get of it: its own where all pictures have it and are small,
// else 224.
int usual_side(const DatasetInfo& info);

// Which draws decide what: Draws(seed, epoch, sample, operation).
enum AugmentOperation : uint32_t {
  kDrawGeometry = 1,
  kDrawFlip = 2,
  kDrawColour = 3,
  kDrawCutout = 4
};

// Output pixel j of a row shows the source at origin + (j + 0.5) * step - 0.5, kept in [low, high]:
// between two pixels it is interpolated linearly.
struct Axis {
  float origin = 0;
  float step = 1;
  int low = 0;
  int high = 0;
};
struct Choices {
  Axis x;
  Axis y;
  Region padded;  // of kPadCrop: the crop's place in the picture; outside of it is black
  bool flip = false;
  float brightness = 0;
  float contrast = 1;
  Region cutout;  // in the output; empty: none
};
// Pure. In this order: geometry (area, aspect, x, y; or side, x, y; or x, y), flip (a coin),
// colour (brightness, contrast), cutout (centre x, y).
Choices choose(const Recipe& recipe, PictureSize size, uint64_t seed, uint64_t epoch,
               uint64_t sample);
// The pixels of the source that are looked at.
Region needed_region(const Recipe& recipe, const Choices& choices, PictureSize size);

enum class Layout : uint8_t { kNchw, kNhwc };
enum class PixelType : uint8_t { kF32, kF16, kBF16, kU8 };  // u8: rounded levels, not normalised

struct OutputForm {
  Layout layout = Layout::kNchw;
  PixelType type = PixelType::kF32;
  int channels = 3;
};
uint64_t bytes_of_sample(const Recipe& recipe, const OutputForm& form);

// Decodes, transforms and writes samples; keeps its memory between calls. One thread at a time.
class Augmenter {
 public:
  Augmenter(const Recipe& recipe, const OutputForm& form, uint64_t seed);
  ~Augmenter();
  // Error (exit code 12) for a picture that cannot be decoded.
  void apply(const Record& record, uint64_t epoch, uint64_t sample, void* out);

  uint64_t memory_bytes() const;  // that it keeps

  // Decodes whole pictures: for comparison.
  void set_decodes_whole(bool whole);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace horon
