#include "horon/data/format/packed.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/text.h"

namespace horon {
namespace {

class Packed final : public Dataset {
 public:
  explicit Packed(PackedPictures pictures) : pictures_(std::move(pictures)) {
    const DatasetInfo& about = pictures_.info;
    bytes_each_ = static_cast<uint64_t>(about.height) * static_cast<uint64_t>(about.width) *
                  static_cast<uint64_t>(about.channels);
    require(pictures_.pixels.size() == pictures_.labels.size() * bytes_each_,
            "a data set with different numbers of labels and images");
    if (pictures_.labels.empty())
      throw CorruptRecord(pictures_.files.empty() ? about.name : pictures_.files.front().second,
                          "no samples");
    for (size_t i = 0; i < pictures_.labels.size(); ++i) {
      if (pictures_.labels[i] < 0 || pictures_.labels[i] >= about.classes)
        throw CorruptRecord(
            where(i), fmt::format("label {} of {} classes", pictures_.labels[i], about.classes));
    }
  }
  const DatasetInfo& info() const override { return pictures_.info; }
  uint64_t size() const override { return pictures_.labels.size(); }
  Record read(uint64_t index, std::vector<uint8_t>&) const override {
    require(index < size(), "a sample that is not there");
    const DatasetInfo& about = pictures_.info;
    return {std::span(pictures_.pixels).subspan(index * bytes_each_, bytes_each_),
            pictures_.form,
            about.height,
            about.width,
            about.channels,
            pictures_.labels[index]};
  }
  void expect(uint64_t index) const override {
    const uint8_t* at = pictures_.pixels.data() + index * bytes_each_;
    for (uint64_t i = 0; i < std::min<uint64_t>(bytes_each_, 4096); i += 64)
      __builtin_prefetch(at + i);
  }
  std::string where(uint64_t index) const override {
    const auto& files = pictures_.files;
    if (files.empty()) return fmt::format("{}, sample {}", pictures_.info.name, index);
    const auto after = std::upper_bound(files.begin(), files.end(), index,
                                        [](uint64_t i, const auto& one) { return i < one.first; });
    const auto& [first, path] = *(after - 1);
    return fmt::format("{}, record {}", path, index - first);
  }
  uint64_t memory_bytes() const override {
    return pictures_.pixels.size() + pictures_.labels.size() * sizeof(int64_t);
  }
  // The files' names do not matter once they are read; a few of the images do.
  uint64_t index_hash() const override {
    constexpr uint64_t kLookedAt = 16;
    uint64_t hash = hash_bytes(pictures_.labels.data(), pictures_.labels.size() * sizeof(int64_t));
    for (uint64_t i = 0; i < kLookedAt; ++i)
      hash = hash_bytes(pictures_.pixels.data() + i * size() / kLookedAt * bytes_each_, bytes_each_,
                        hash);
    return hash;
  }

 private:
  PackedPictures pictures_;
  uint64_t bytes_each_ = 0;
};

}  // namespace

std::shared_ptr<Dataset> make_packed(PackedPictures pictures) {
  return std::make_shared<Packed>(std::move(pictures));
}

}  // namespace horon
