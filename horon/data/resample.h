#pragma once

#include <cstdint>
#include <vector>

#include "horon/data/augment.h"

// The inner loops: pixels in, levels out.
namespace horon {

// RGB pixels, row by row; `region` says which part of the picture they are.
struct Pixels {
  const uint8_t* data = nullptr;
  Region region;
};

// Rows of the output, one after the other: RGB levels (floats) of row `row`.
class Resampler {
 public:
  void prepare(const Recipe& recipe, const Choices& choices, const Pixels& source);
  // Valid until the next call; 3 * width floats.
  const float* row(int row);
  uint64_t memory_bytes() const {
    return place_.capacity() * sizeof(int) +
           (weight_.capacity() + line_.capacity() + out_.capacity()) * sizeof(float);
  }

 private:
  Pixels source_;
  int width_ = 0;
  int first_ = 0;  // column of the source that the line begins with
  int columns_ = 0;
  Axis y_;
  std::vector<int> place_;  // of each output pixel: the left one of its two columns, times 3
  std::vector<float> weight_;
  std::vector<float> line_;
  std::vector<float> out_;
};

// Level -> level * scale + shift, for each channel.
struct Affine {
  float scale[3] = {1, 1, 1};
  float shift[3] = {0, 0, 0};
};

// One padded, cropped, perhaps mirrored picture to planes of floats. `planar`: the source is one
// plane a channel, else channels are together.
struct PadCrop {
  const uint8_t* source = nullptr;
  int height = 0;
  int width = 0;
  bool planar = true;
  Region crop;
  bool flip = false;
  Affine affine;
};
void pad_crop_to_planes(const PadCrop& job, float* out);

// A row of `width` RGB levels to its place in planes (`plane` elements apart) or together.
void write_planes_f32(const float* row, int width, const Affine& affine, float* out,
                      uint64_t plane);

}  // namespace horon
