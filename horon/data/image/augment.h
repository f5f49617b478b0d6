#pragma once

#include <cstdint>
#include <memory>

#include "horon/data/dataset.h"
#include "horon/data/image/recipe.h"

// The processing of an image between file and network. Deciding (choose) and executing (apply) are
// separate: decisions depend only on (seed, epoch, sample).
namespace horon {

enum class PixelLayout : uint8_t { kNchw, kNhwc };
enum class PixelType : uint8_t { kF32, kF16, kBF16, kU8 };  // u8: rounded levels, not normalised

// The memory layout of a sample.
struct OutputForm {
  PixelLayout layout = PixelLayout::kNchw;
  PixelType type = PixelType::kF32;
  int channels = 3;
};
uint64_t bytes_of_sample(const Recipe& recipe, const OutputForm& form);

// Decodes, transforms and writes samples; reuses its memory between calls. One thread at a time.
class Augmenter {
 public:
  Augmenter(const Recipe& recipe, const OutputForm& form, uint64_t seed);
  ~Augmenter();
  // Writes bytes_of_sample() bytes to `out`. Error (exit code 12) for an image that cannot be
  // decoded.
  void apply(const Record& record, uint64_t epoch, uint64_t sample, void* out);

  uint64_t memory_bytes() const;  // that it keeps

  // Decodes whole images, for comparison.
  void set_decodes_whole(bool whole);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace horon
