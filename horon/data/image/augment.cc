#include "horon/data/image/augment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "horon/base/error.h"
#include "horon/data/image/jpeg.h"
#include "horon/data/image/png.h"
#include "horon/data/image/resample.h"
#include "horon/device/half.h"

namespace horon {
namespace {

Affine affine_of(const Recipe& recipe) {
  Affine affine;
  for (size_t c = 0; c < 3; ++c) {
    affine.scale[c] = 1.0F / recipe.deviation[c];
    affine.shift[c] = -recipe.mean[c] / recipe.deviation[c];
  }
  return affine;
}

bool changes_colour(const Recipe& recipe) {
  return recipe.brightness > 0 || recipe.contrast_low != 1.0F || recipe.contrast_high != 1.0F;
}

size_t width_of(PixelType type) {
  if (type == PixelType::kF32) return 4;
  return type == PixelType::kU8 ? 1 : 2;
}

void store(PixelType type, void* out, uint64_t at, float value) {
  switch (type) {
    case PixelType::kF32:
      static_cast<float*>(out)[at] = value;
      return;
    case PixelType::kF16:
      static_cast<uint16_t*>(out)[at] = float_to_f16(value);
      return;
    case PixelType::kBF16:
      static_cast<uint16_t*>(out)[at] = float_to_bf16(value);
      return;
    case PixelType::kU8:
      static_cast<uint8_t*>(out)[at] = static_cast<uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F));
      return;
  }
}

}  // namespace

uint64_t bytes_of_sample(const Recipe& recipe, const OutputForm& form) {
  return static_cast<uint64_t>(recipe.height) * static_cast<uint64_t>(recipe.width) *
         static_cast<uint64_t>(form.channels) * width_of(form.type);
}

struct Augmenter::State {
  Recipe recipe;
  OutputForm form;
  uint64_t seed = 0;
  bool whole = false;
  Affine affine;
  Picture picture;
  Resampler resampler;
  std::vector<float> levels;  // of the whole output, where rows are not enough

  // RGB rows of (at least) what the choices look at.
  Pixels open(const Record& record, const Choices& choices, PictureSize size) {
    const Region all{0, 0, size.width, size.height};
    switch (record.form) {
      case PixelForm::kJpeg: {
        const Region wanted = whole ? all : needed_region(recipe, choices, size);
        if (wanted == all) {
          decode_jpeg(record.bytes, picture);
          return {picture.pixels.data(), all};
        }
        const Region got = decode_jpeg_region(record.bytes, wanted, picture);
        return {picture.pixels.data(), got};
      }
      case PixelForm::kPng:
        return {picture.pixels.data(), all};  // size_of has decoded it
      case PixelForm::kHwc:
        if (record.channels == 3) return {record.bytes.data(), all};
        break;
      case PixelForm::kChw:
        break;
    }
    spread(record);
    return {picture.pixels.data(), all};
  }

  PictureSize size_of(const Record& record) {
    if (record.form == PixelForm::kJpeg) return jpeg_size(record.bytes);
    if (record.form == PixelForm::kPng) {
      decode_png(record.bytes, picture);
      return {picture.height, picture.width};
    }
    return {record.height, record.width};
  }

  // Planes or grey to RGB.
  void spread(const Record& record) {
    const size_t count = static_cast<size_t>(record.height) * static_cast<size_t>(record.width);
    picture.pixels.resize(3 * count);
    for (size_t c = 0; c < 3; ++c) {
      const uint8_t* plane = record.bytes.data() + (record.channels == 3 ? c * count : 0);
      for (size_t i = 0; i < count; ++i) picture.pixels[3 * i + c] = plane[i];
    }
  }

  bool is_quick(const Record& record) const {
    return recipe.geometry == Geometry::kPadCrop && form.type == PixelType::kF32 &&
           form.layout == PixelLayout::kNchw && form.channels == 3 && record.channels == 3 &&
           (record.form == PixelForm::kChw || record.form == PixelForm::kHwc) &&
           !recipe.standardises && !changes_colour(recipe) && recipe.width <= 256;
  }

  // Levels of a padded crop, RGB, row by row.
  void pad_rows(const Pixels& source, PictureSize size, const Choices& choices) {
    const Region& crop = choices.padded;
    float* level = levels.data();
    for (int row = 0; row < crop.height; ++row) {
      for (int column = 0; column < crop.width; ++column) {
        const int x = crop.x + (choices.flip ? crop.width - 1 - column : column);
        const int y = crop.y + row;
        const bool inside = x >= 0 && y >= 0 && x < size.width && y < size.height;
        for (int c = 0; c < 3; ++c)
          *level++ = inside ? static_cast<float>(source.data[(int64_t{y} * size.width + x) * 3 + c])
                            : 0.0F;
      }
    }
  }

  void fill_levels(const Pixels& source, PictureSize size, const Choices& choices) {
    const auto row_size = 3 * static_cast<size_t>(recipe.width);
    levels.resize(row_size * static_cast<size_t>(recipe.height));
    if (recipe.geometry == Geometry::kPadCrop) return pad_rows(source, size, choices);
    resampler.prepare(recipe, choices, source);
    for (int row = 0; row < recipe.height; ++row)
      std::copy_n(resampler.row(row), row_size,
                  levels.data() + static_cast<size_t>(row) * row_size);
  }

  // Brightness is added; contrast stretches each channel around its mean.
  void change_colour(const Choices& choices) {
    for (float& level : levels) level += choices.brightness;
    const double count = static_cast<double>(levels.size()) / 3;
    for (size_t c = 0; c < 3; ++c) {
      double sum = 0;
      for (size_t i = c; i < levels.size(); i += 3) sum += levels[i];
      const auto mean = static_cast<float>(sum / count);
      for (size_t i = c; i < levels.size(); i += 3)
        levels[i] = (levels[i] - mean) * choices.contrast + mean;
    }
  }

  // (level - mean) / max(deviation, 1 / sqrt(count)) over the channels that are written.
  Affine standardised() const {
    double sum = 0;
    double squares = 0;
    for (const float level : levels) {
      sum += level;
      squares += static_cast<double>(level) * level;
    }
    const auto count = static_cast<double>(levels.size());
    const double mean = sum / count;
    const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
    const double by = std::max(deviation, 1.0 / std::sqrt(count));
    Affine out;
    for (size_t c = 0; c < 3; ++c) {
      out.scale[c] = static_cast<float>(1.0 / by);
      out.shift[c] = static_cast<float>(-mean / by);
    }
    return out;
  }

  void write_row(const float* row, int y, const Affine& by, void* out) const {
    const auto width = static_cast<uint64_t>(recipe.width);
    const uint64_t plane = width * static_cast<uint64_t>(recipe.height);
    const uint64_t first = static_cast<uint64_t>(y) * width;
    const bool planes = form.layout == PixelLayout::kNchw;
    if (planes && form.type == PixelType::kF32 && form.channels == 3)
      return write_planes_f32(row, recipe.width, by, static_cast<float*>(out) + first, plane);
    const auto channels = static_cast<uint64_t>(form.channels);
    for (uint64_t j = 0; j < width; ++j) {
      for (uint64_t c = 0; c < channels; ++c) {
        const float level = row[3 * j + c];
        const float value = form.type == PixelType::kU8 ? level : level * by.scale[c] + by.shift[c];
        store(form.type, out, planes ? c * plane + first + j : (first + j) * channels + c, value);
      }
    }
  }

  void cut_out(const Region& hole, void* out) const {
    for (int y = hole.y; y < hole.y + hole.height; ++y) {
      for (int x = hole.x; x < hole.x + hole.width; ++x) {
        for (int c = 0; c < form.channels; ++c) {
          const int at = form.layout == PixelLayout::kNchw
                             ? (c * recipe.height + y) * recipe.width + x
                             : (y * recipe.width + x) * form.channels + c;
          store(form.type, out, static_cast<uint64_t>(at), 0.0F);
        }
      }
    }
  }
};

Augmenter::Augmenter(const Recipe& recipe, const OutputForm& form, uint64_t seed)
    : state_(std::make_unique<State>()) {
  require(recipe.height > 0 && recipe.width > 0, "the recipe has no image size");
  require(form.channels == 1 || form.channels == 3, "the recipe must produce 1 or 3 channels");
  state_->recipe = recipe;
  state_->form = form;
  state_->seed = seed;
  state_->affine = affine_of(recipe);
}
Augmenter::~Augmenter() = default;

uint64_t Augmenter::memory_bytes() const {
  return state_->picture.pixels.capacity() + state_->levels.capacity() * sizeof(float) +
         state_->resampler.memory_bytes();
}

void Augmenter::set_decodes_whole(bool whole) { state_->whole = whole; }

void Augmenter::apply(const Record& record, uint64_t epoch, uint64_t sample, void* out) {
  State& state = *state_;
  const Recipe& recipe = state.recipe;
  const PictureSize size = state.size_of(record);
  const Choices choices = choose(recipe, size, state.seed, epoch, sample);
  if (state.is_quick(record)) {
    pad_crop_to_planes({record.bytes.data(), size.height, size.width,
                        record.form == PixelForm::kChw, choices.padded, choices.flip, state.affine},
                       static_cast<float*>(out));
    return state.cut_out(choices.cutout, out);
  }
  const Pixels source = state.open(record, choices, size);
  const bool by_rows =
      !recipe.standardises && !changes_colour(recipe) && recipe.geometry != Geometry::kPadCrop;
  if (by_rows) {
    state.resampler.prepare(recipe, choices, source);
    for (int row = 0; row < recipe.height; ++row)
      state.write_row(state.resampler.row(row), row, state.affine, out);
    return state.cut_out(choices.cutout, out);
  }
  state.fill_levels(source, size, choices);
  if (changes_colour(recipe)) state.change_colour(choices);
  const Affine by = recipe.standardises ? state.standardised() : state.affine;
  for (int row = 0; row < recipe.height; ++row)
    state.write_row(state.levels.data() + static_cast<size_t>(3 * row * recipe.width), row, by,
                    out);
  state.cut_out(choices.cutout, out);
}

}  // namespace horon
