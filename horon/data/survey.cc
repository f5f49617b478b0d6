#include "horon/data/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <unordered_map>

#include "horon/base/text.h"
#include "horon/data/image/augment.h"
#include "horon/data/image/decode.h"
#include "horon/data/image/jpeg.h"
#include "horon/data/image/png.h"
#include "horon/data/parallel.h"

namespace horon {
namespace {

using Progress = std::function<void(uint64_t done, uint64_t total)>;
constexpr uint64_t kBlock = 64;

// visit(index, record, picture, error) for every sample, by several threads; error: what is wrong
// with it, else empty.
template <typename Visit>
void visit_all(const Dataset& set, int threads, const Progress& progress, const Visit& visit) {
  std::mutex mutex;  // guards the one below
  uint64_t done = 0;
  const auto walk = [&](const Range& block, std::vector<uint8_t>& scratch, Picture& picture) {
    for (uint64_t i = block.first; i < block.last; ++i) {
      Record record;
      std::string error;
      try {
        record = set.read(i, scratch);
        decode_record(record, picture);
      } catch (const CorruptRecord& bad) {
        error = bad.what();
      } catch (const Error& bad) {
        error = fmt::format("{}: {}", set.where(i), bad.what());
      }
      visit(i, record, picture, error);
    }
    const std::lock_guard lock(mutex);
    done += block.size();
    if (progress) progress(done, set.size());
  };
  for_blocks({0, set.size()}, kBlock, threads, [&]() -> BlockBody {
    return [&, scratch = std::vector<uint8_t>(), picture = Picture()](const Range& block) mutable {
      walk(block, scratch, picture);
    };
  });
}

}  // namespace

std::optional<PictureSize> common_size(const Dataset& set) {
  constexpr uint64_t kMostLookedAt = 1024;
  if (set.info().height > 0) return PictureSize{set.info().height, set.info().width};
  const uint64_t count = std::min(set.size(), kMostLookedAt);
  std::vector<uint8_t> scratch;
  std::optional<PictureSize> common;
  for (uint64_t i = 0; i < count; ++i) {
    PictureSize size;
    try {
      const Record record = set.read(i * set.size() / count, scratch);
      size = record.form == PixelForm::kJpeg  ? jpeg_size(record.bytes)
             : record.form == PixelForm::kPng ? png_size(record.bytes)
                                              : PictureSize{record.height, record.width};
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::kData) throw;
      continue;
    }
    if (!common) common = size;
    if (common->height != size.height || common->width != size.width) return std::nullopt;
  }
  return common;
}

DatasetInfo info_with_size(const Dataset& set) {
  DatasetInfo info = set.info();
  if (const auto size = common_size(set)) {
    info.height = size->height;
    info.width = size->width;
  }
  return info;
}

VerifyReport verify_dataset(const Dataset& set, int threads, const Progress& progress) {
  VerifyReport report;
  report.samples = set.size();
  const std::vector<std::string> losses = set.losses();
  report.lost = losses.size();
  std::mutex mutex;                             // guards all below and the report
  std::unordered_map<uint64_t, uint64_t> seen;  // hash -> first sample that has it
  const auto say = [&](const std::string& problem) {
    if (report.problems.size() < 20) report.problems.push_back(problem);
  };
  for (const std::string& one : losses) say(one);
  const auto visit = [&](uint64_t index, const Record& record, const Picture& picture,
                         std::string error) {
    if (error.empty() && (record.label < 0 || record.label >= set.info().classes))
      error = fmt::format("{}: label {} of {} classes", set.where(index), record.label,
                          set.info().classes);
    const uint64_t hash =
        error.empty() ? hash_bytes(picture.pixels.data(), picture.pixels.size()) : 0;
    const std::lock_guard lock(mutex);
    if (!error.empty()) {
      ++report.bad;
      return say(error);
    }
    const auto [first, fresh] = seen.emplace(hash, index);
    if (fresh) return;
    ++report.duplicates;
    say(fmt::format("{}: the same image as {}", set.where(index), set.where(first->second)));
  };
  visit_all(set, threads, progress, visit);
  return report;
}

Statistics measure_dataset(const Dataset& set, int threads, const Progress& progress) {
  Statistics result;
  for (const std::string& one : set.losses()) throw Error(one, ExitCode::kData);
  result.histogram.resize(static_cast<size_t>(std::max(set.info().classes, 1)));
  std::mutex mutex;  // guards all below and the result
                     // Whole numbers: the order of the threads does not matter.
  std::array<unsigned __int128, 3> sum = {};
  std::array<unsigned __int128, 3> squares = {};
  uint64_t pixels = 0;
  const auto visit = [&](uint64_t, const Record& record, const Picture& picture,
                         const std::string& error) {
    if (!error.empty()) throw Error(error, ExitCode::kData);
    std::array<uint64_t, 3> one = {};
    std::array<uint64_t, 3> two = {};
    const auto channels = static_cast<size_t>(picture.channels);
    for (size_t i = 0; i < picture.pixels.size(); ++i) {
      const uint64_t level = picture.pixels[i];
      one[i % channels] += level;
      two[i % channels] += level * level;
    }
    const std::lock_guard lock(mutex);
    for (size_t c = 0; c < 3; ++c) {
      sum[c] += one[c % channels];
      squares[c] += two[c % channels];
    }
    pixels += picture.pixels.size() / channels;
    ++result.samples;
    if (record.label >= 0 && static_cast<size_t>(record.label) < result.histogram.size())
      ++result.histogram[static_cast<size_t>(record.label)];
    const auto [shorter, longer] = std::minmax(picture.height, picture.width);
    const auto smallest = static_cast<uint64_t>(shorter);
    result.smallest_side =
        result.smallest_side == 0 ? smallest : std::min(result.smallest_side, smallest);
    result.largest_side = std::max(result.largest_side, static_cast<uint64_t>(longer));
  };
  visit_all(set, threads, progress, visit);
  const auto count = static_cast<double>(std::max<uint64_t>(pixels, 1));
  for (size_t c = 0; c < 3; ++c) {
    result.mean[c] = static_cast<double>(sum[c]) / count;
    result.deviation[c] = std::sqrt(
        std::max(0.0, static_cast<double>(squares[c]) / count - result.mean[c] * result.mean[c]));
  }
  return result;
}

Picture contact_sheet(const Dataset& set, int columns, int rows, int side,
                      const std::string& recipe, uint64_t seed) {
  const int pitch = side + 4;
  Picture sheet{rows * pitch + 4, columns * pitch + 4, 3, {}};
  sheet.pixels.assign(static_cast<size_t>(sheet.height) * static_cast<size_t>(sheet.width) * 3,
                      255);
  Recipe how = find_recipe(recipe.empty() ? "none" : recipe, !recipe.empty(), side, side);
  if (how.geometry == Geometry::kPadCrop) {  // at its own size, then enlarged below
    const DatasetInfo info = info_with_size(set);
    require(info.height > 0,
            fmt::format("{}: the images must have one size; these differ", recipe));
    how.height = info.height;
    how.width = info.width;
  }
  Augmenter augmenter(how, {PixelLayout::kNhwc, PixelType::kU8, 3}, seed);
  Augmenter enlarger(find_recipe("none", false, side, side),
                     {PixelLayout::kNhwc, PixelType::kU8, 3}, seed);
  std::vector<uint8_t> scratch;
  std::vector<uint8_t> small(static_cast<size_t>(how.height) * static_cast<size_t>(how.width) * 3);
  std::vector<uint8_t> tile(static_cast<size_t>(side) * static_cast<size_t>(side) * 3);
  const auto count =
      std::min<uint64_t>(set.size(), static_cast<uint64_t>(columns) * static_cast<uint64_t>(rows));
  for (uint64_t i = 0; i < count; ++i) {
    augmenter.apply(set.read(i, scratch), 0, i, small.data());
    enlarger.apply({small, PixelForm::kHwc, how.height, how.width, 3, 0}, 0, i, tile.data());
    const int x = 4 + static_cast<int>(i) % columns * pitch;
    const int y = 4 + static_cast<int>(i) / columns * pitch;
    for (int row = 0; row < side; ++row)
      std::copy_n(tile.data() + static_cast<ptrdiff_t>(row) * side * 3, side * 3,
                  sheet.pixels.data() + (static_cast<ptrdiff_t>(y + row) * sheet.width + x) * 3);
  }
  return sheet;
}

}  // namespace horon
