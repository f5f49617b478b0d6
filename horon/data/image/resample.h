#pragma once

#include <cstdint>
#include <vector>

#include "horon/data/image/choices.h"

// The inner loops of augmentation: pixels in, levels out.
namespace horon {

// RGB pixels, row by row; `region` is their position in the image.
struct Pixels {
  const uint8_t* data = nullptr;
  Region region;
};

// Computes rows of the output one after the other: RGB levels (floats) of row `row`. One thread at
// a time.
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
  int first_ = 0;  // source column at the start of the line
  int columns_ = 0;
  Axis y_;
  std::vector<int> place_;  // per output pixel: its left source column times 3
  std::vector<float> weight_;
  std::vector<float> line_;
  std::vector<float> out_;
};

// level * scale + shift, per channel.
struct Affine {
  float scale[3] = {1, 1, 1};
  float shift[3] = {0, 0, 0};
};

// Pads, crops and optionally flips an image into planes of floats. `planar`: the source has one
// plane per channel, else channels are interleaved.
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

// Writes a row of `width` RGB levels to planes (`plane` elements apart).
void write_planes_f32(const float* row, int width, const Affine& affine, float* out,
                      uint64_t plane);

}  // namespace horon
