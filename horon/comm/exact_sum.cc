#include "horon/comm/exact_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "horon/base/error.h"
#include "horon/comm/arithmetic/reduce.h"

namespace horon {

ExactSum::ExactSum(uint64_t count, DType dtype, uint64_t shards, Allocate allocate,
                   std::shared_ptr<DeviceRuntime> device)
    : spec_{nullptr, count, dtype, {}},
      shards_(shards),
      allocate_(std::move(allocate)),
      device_(std::move(device)) {
  require(dtype == DType::kF32 || dtype == DType::kF64, "exact sum: f32 or f64");
  require(shards >= 1 && shards <= (1U << 20), "exact sum: 1 to 2^20 shards");
}

OwnedBuffer ExactSum::take_array() {
  if (spare_.empty()) return allocate_(spec_.count, spec_.dtype);
  OwnedBuffer array = std::move(spare_.back());
  spare_.pop_back();
  return array;
}

void ExactSum::add(uint64_t shard, BufferView contribution) {
  require(shard < shards_, fmt::format("exact sum: shard {} of {}", shard, shards_));
  require(contribution.count == spec_.count && contribution.dtype == spec_.dtype,
          "exact sum: the contribution has another size or type");
  const HostMirror mirror(contribution, true, device_.get());
  contribution = mirror.view();
  const TreeNode node = promote({shard, 0}, shards_);
  for (const Kept& kept : kept_) {
    const bool held =
        shard >= kept.node.first && shard - kept.node.first < (1ULL << kept.node.level);
    require(!held, fmt::format("exact sum: shard {} was added twice", shard));
  }
  // If the sibling is here already, the contribution is added to it at once: no array of its own.
  const auto sibling = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
    return kept.node == TreeNode{sibling_first(node), node.level};
  });
  if (sibling != kept_.end()) {
    accumulate(spec_.dtype, sibling->array.view().data, contribution.data, spec_.count);
    sibling->node = promote({std::min(node.first, sibling->node.first), node.level + 1}, shards_);
    settle(static_cast<size_t>(sibling - kept_.begin()));
    return;
  }
  Kept fresh{node, take_array()};
  if (spec_.count != 0)
    std::memcpy(fresh.array.view().data, contribution.data, contribution.bytes());
  kept_.push_back(std::move(fresh));
}

void ExactSum::settle(size_t i) {
  while (true) {
    const TreeNode node = kept_[i].node;
    const auto sibling = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
      return kept.node == TreeNode{sibling_first(node), node.level};
    });
    if (sibling == kept_.end()) return;
    const auto other = static_cast<size_t>(sibling - kept_.begin());
    accumulate(spec_.dtype, kept_[i].array.view().data, sibling->array.view().data, spec_.count);
    kept_[i].node = promote({std::min(node.first, sibling->node.first), node.level + 1}, shards_);
    spare_.push_back(std::move(sibling->array));
    kept_.erase(sibling);
    if (other < i) --i;
  }
}

void ExactSum::clear() {
  for (Kept& kept : kept_) spare_.push_back(std::move(kept.array));
  kept_.clear();
}

}  // namespace horon
