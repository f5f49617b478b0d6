#include "horon/data/format/made_up.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "horon/base/thread.h"
#include "horon/data/format/packed.h"
#include "horon/data/random.h"

namespace horon {
namespace {

constexpr int kSide = 32;
constexpr uint32_t kShapeDraws = 4000;  // operations that nothing else uses
constexpr uint32_t kNoiseDraws = 4001;
constexpr uint32_t kSyntheticDraws = 4002;
constexpr uint64_t kTestOffset = uint64_t{1} << 40;  // samples of the test set are others

const std::vector<std::string> kShapeNames = {
    "disc", "square",          "triangle",      "ring",      "cross",
    "star", "horizontal_bars", "vertical_bars", "half_disc", "two_discs"};

// Whether a point, in units of the shape's half-size and turned upright, is inside.
bool is_inside(int shape, float x, float y) {
  const float r = std::sqrt(x * x + y * y);
  const bool in_box = std::abs(x) <= 0.9F && std::abs(y) <= 0.9F;
  const auto disc = [](float px, float py, float radius) {
    return px * px + py * py <= radius * radius;
  };
  const auto bars = [](float at) { return std::fmod(at + 0.9F, 0.6F) < 0.3F; };
  switch (shape) {
    case 0:
      return r <= 1.0F;
    case 1:
      return std::abs(x) <= 0.85F && std::abs(y) <= 0.85F;
    case 2:
      return y <= 0.75F && y >= -0.95F && std::abs(x) <= (y + 0.95F) * 0.58F;
    case 3:
      return r <= 1.0F && r >= 0.58F;
    case 4:
      return in_box && (std::abs(x) <= 0.3F || std::abs(y) <= 0.3F);
    case 5:
      return r <= 0.62F + 0.38F * std::cos(5.0F * std::atan2(y, x));
    case 6:
      return in_box && bars(y);
    case 7:
      return in_box && bars(x);
    case 8:
      return r <= 1.0F && y <= 0.0F;
    default:
      return disc(x - 0.52F, y, 0.46F) || disc(x + 0.52F, y, 0.46F);
  }
}

struct Drawing {
  int shape = 0;
  float half = 0;
  float centre_x = 0;
  float centre_y = 0;
  float cosine = 1;
  float sine = 0;
  std::array<std::array<float, 3>, 2> colours = {};  // ground, shape
  float slope_x = 0;
  float slope_y = 0;
  float noise = 0;
};

Drawing plan_drawing(uint64_t seed, uint64_t sample) {
  Draws draws(seed, 0, sample, kShapeDraws);
  Drawing drawing;
  drawing.shape = static_cast<int>(draws.below(10));
  drawing.half = draws.between(6.5F, 12.5F);
  drawing.centre_x = draws.between(drawing.half, static_cast<float>(kSide) - drawing.half);
  drawing.centre_y = draws.between(drawing.half, static_cast<float>(kSide) - drawing.half);
  const float angle = draws.between(-0.45F, 0.45F);
  drawing.cosine = std::cos(angle);
  drawing.sine = std::sin(angle);
  float apart = 0;
  while (apart < 130.0F) {
    apart = 0;
    for (int c = 0; c < 3; ++c) {
      for (auto& colour : drawing.colours)
        colour[static_cast<size_t>(c)] = draws.between(0.0F, 255.0F);
      apart += std::abs(drawing.colours[0][static_cast<size_t>(c)] -
                        drawing.colours[1][static_cast<size_t>(c)]);
    }
  }
  drawing.slope_x = draws.between(-15.0F, 15.0F);
  drawing.slope_y = draws.between(-15.0F, 15.0F);
  drawing.noise = draws.between(4.0F, 22.0F);
  return drawing;
}

// How much of the pixel is covered, from 2 x 2 points in it.
float covered(const Drawing& drawing, int column, int row) {
  int inside = 0;
  for (int part = 0; part < 4; ++part) {
    const int right = part % 2;
    const int down = part / 2;
    const float x =
        (static_cast<float>(column) + 0.25F + 0.5F * static_cast<float>(right) - drawing.centre_x) /
        drawing.half;
    const float y =
        (static_cast<float>(row) + 0.25F + 0.5F * static_cast<float>(down) - drawing.centre_y) /
        drawing.half;
    const float turned_x = x * drawing.cosine + y * drawing.sine;
    const float turned_y = y * drawing.cosine - x * drawing.sine;
    inside += is_inside(drawing.shape, turned_x, turned_y) ? 1 : 0;
  }
  return static_cast<float>(inside) * 0.25F;
}

void draw(const Drawing& drawing, uint64_t seed, uint64_t sample, uint8_t* to) {
  Draws noise(seed, 0, sample, kNoiseDraws);
  for (int row = 0; row < kSide; ++row) {
    for (int column = 0; column < kSide; ++column) {
      const float coverage = covered(drawing, column, row);
      const float light = drawing.slope_x * (static_cast<float>(column) / 31.0F - 0.5F) * 2.0F +
                          drawing.slope_y * (static_cast<float>(row) / 31.0F - 0.5F) * 2.0F;
      for (size_t c = 0; c < 3; ++c) {
        // The sum of four uniform numbers is near enough to a normal one, and quick.
        const uint32_t bits = noise.word();
        const int sum = static_cast<int>((bits & 0xff) + (bits >> 8 & 0xff) + (bits >> 16 & 0xff) +
                                         (bits >> 24));
        const float random = (static_cast<float>(sum) - 510.0F) * (1.0F / 147.8F);
        const float value = drawing.colours[0][c] +
                            (drawing.colours[1][c] - drawing.colours[0][c]) * coverage + light +
                            random * drawing.noise;
        *to++ = static_cast<uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F));
      }
    }
  }
}

// The same few random images again and again: what is measured is everything but the source.
class Synthetic final : public Dataset {
 public:
  explicit Synthetic(const DatasetRequest& request) {
    const int side = request.image_size > 0 ? request.image_size : 224;
    info_ = {
        "synthetic", request.split, side, side, 3, request.classes > 0 ? request.classes : 1000,
        {}};
    size_ = request.samples > 0 ? request.samples : request.split == "train" ? 1'281'167 : 50'000;
    seed_ = request.seed;
    pixels_.resize(kPictures * static_cast<size_t>(side) * static_cast<size_t>(side) * 3);
    Draws draws(seed_, 0, 0, kSyntheticDraws);
    for (size_t i = 0; i < pixels_.size(); ++i)
      pixels_[i] = static_cast<uint8_t>(draws.word() >> 24);
  }
  const DatasetInfo& info() const override { return info_; }
  uint64_t size() const override { return size_; }
  Record read(uint64_t index, std::vector<uint8_t>&) const override {
    const size_t each = pixels_.size() / kPictures;
    const auto label =
        static_cast<int64_t>(mix_bits(seed_ + index) % static_cast<uint64_t>(info_.classes));
    return {std::span(pixels_).subspan(index % kPictures * each, each),
            PixelForm::kHwc,
            info_.height,
            info_.width,
            3,
            label};
  }
  std::string where(uint64_t index) const override {
    return fmt::format("synthetic, sample {}", index);
  }
  uint64_t memory_bytes() const override { return pixels_.size(); }
  uint64_t index_hash() const override { return mix_bits(seed_ + 1); }

 private:
  static constexpr size_t kPictures = 16;
  DatasetInfo info_;
  uint64_t size_ = 0;
  uint64_t seed_ = 0;
  std::vector<uint8_t> pixels_;
};

}  // namespace

std::shared_ptr<Dataset> make_shapes10(const DatasetRequest& request) {
  const bool train = request.split == "train";
  const uint64_t count = request.samples > 0 ? request.samples : (train ? 10'000 : 2'000);
  constexpr uint64_t kMost = 10'000'000;  // 30 GB
  if (count > kMost)
    throw UsageError(
        fmt::format("{} samples of shapes10: they are held in memory, at most {}", count, kMost));
  PackedPictures pictures;
  pictures.info = {"shapes10", request.split, kSide, kSide, 3, 10, kShapeNames};
  pictures.pixels.resize(count * kSide * kSide * 3);
  pictures.labels.resize(count);
  parallel_for(
      count, 256, static_cast<int>(usable_cores().size()), [&](uint64_t first, uint64_t last) {
        for (uint64_t i = first; i < last; ++i) {
          const uint64_t sample = i + (train ? 0 : kTestOffset);
          const Drawing drawing = plan_drawing(request.seed, sample);
          pictures.labels[i] = drawing.shape;
          draw(drawing, request.seed, sample, pictures.pixels.data() + i * kSide * kSide * 3);
        }
      });
  return make_packed(std::move(pictures));
}

std::shared_ptr<Dataset> make_synthetic(const DatasetRequest& request) {
  return std::make_shared<Synthetic>(request);
}

}  // namespace horon
