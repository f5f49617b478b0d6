#include "horon/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/text.h"

namespace horon {
namespace {

class Subset final : public Dataset {
 public:
  Subset(std::shared_ptr<Dataset> of, std::vector<uint64_t> indices, const std::string& split)
      : of_(std::move(of)), indices_(std::move(indices)), info_(of_->info()) {
    info_.split = split;
  }
  const DatasetInfo& info() const override { return info_; }
  uint64_t size() const override { return indices_.size(); }
  Record read(uint64_t index, std::vector<uint8_t>& scratch) const override {
    return of_->read(indices_.at(index), scratch);
  }
  std::string where(uint64_t index) const override { return of_->where(indices_.at(index)); }
  std::vector<std::string> losses() const override { return of_->losses(); }
  uint64_t memory_bytes() const override {
    return of_->memory_bytes() + indices_.size() * sizeof(uint64_t);
  }
  uint64_t index_hash() const override {
    return hash_bytes(indices_.data(), indices_.size() * sizeof(uint64_t), of_->index_hash());
  }
  // Of each of the others' chunks the samples that are ours; they are in order.
  std::vector<uint64_t> chunks() const override {
    std::vector<uint64_t> mine;
    uint64_t end = 0;
    auto at = indices_.begin();
    for (const uint64_t size : of_->chunks()) {
      end += size;
      const auto next = std::lower_bound(at, indices_.end(), end);
      if (next != at) mine.push_back(static_cast<uint64_t>(next - at));
      at = next;
    }
    return mine;
  }

 private:
  std::shared_ptr<Dataset> of_;
  std::vector<uint64_t> indices_;
  DatasetInfo info_;
};

}  // namespace

uint64_t index_digest(const Dataset& set) {
  const DatasetInfo& info = set.info();
  std::string text = fmt::format("{} {} {} {} {} {} {}", info.name, info.split, set.size(),
                                 info.height, info.width, info.channels, info.classes);
  for (const std::string& name : info.class_names) text += "\n" + name;
  return hash_bytes(text.data(), text.size(), set.index_hash());
}

std::shared_ptr<Dataset> make_subset(std::shared_ptr<Dataset> of, std::vector<uint64_t> indices,
                                     const std::string& split) {
  require(std::is_sorted(indices.begin(), indices.end()), "a subset's samples are in order");
  return std::make_shared<Subset>(std::move(of), std::move(indices), split);
}

}  // namespace horon
