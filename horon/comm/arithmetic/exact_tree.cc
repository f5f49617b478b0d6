#include "horon/comm/arithmetic/exact_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "horon/base/error.h"

namespace horon {
namespace {

uint64_t end_of(const TreeNode& node) { return node.first + (1ULL << node.level); }

// The smallest node over all of these leaves, in order of their shards: the first one behind the
// middle of that node.
template <typename Leaf>
size_t split(size_t begin, size_t end, const Leaf& leaf) {
  const uint64_t low = leaf(begin).first;
  const uint64_t high = end_of(leaf(end - 1)) - 1;
  const auto level = static_cast<uint32_t>(std::bit_width(low ^ high));
  const uint64_t middle = ((high >> (level - 1)) << (level - 1));
  for (size_t i = begin + 1; i < end; ++i) {
    if (leaf(i).first >= middle) return i;
  }
  return end - 1;
}

// Indices of the leaves, by shard.
std::vector<uint32_t> order_of(std::span<const TreeNode> leaves) {
  std::vector<uint32_t> order(leaves.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return leaves[a].first < leaves[b].first; });
  return order;
}

class Planner {
 public:
  Planner(std::span<const TreeNode> leaves, std::vector<uint32_t> order)
      : leaves_(leaves), order_(std::move(order)) {}

  // Emits the instructions that leave the sum of order_[begin, end) on the stack.
  void emit(size_t begin, size_t end) {
    if (end - begin == 1) {
      steps_.push_back({TreeInstruction::Kind::kPush, order_[begin], 0});
      return;
    }
    const size_t middle = split(begin, end, [&](size_t i) { return leaf(i); });
    const bool left_is_leaf = middle - begin == 1;
    const bool right_is_leaf = end - middle == 1;
    if (left_is_leaf && right_is_leaf) {
      steps_.push_back({TreeInstruction::Kind::kPushSum, order_[begin], order_[middle]});
    } else if (right_is_leaf) {
      emit(begin, middle);
      steps_.push_back({TreeInstruction::Kind::kAddLeaf, order_[middle], 0});
    } else if (left_is_leaf) {  // addition commutes to the bit (NaN is made canonical at the end)
      emit(middle, end);
      steps_.push_back({TreeInstruction::Kind::kAddLeaf, order_[begin], 0});
    } else {
      emit(begin, middle);
      emit(middle, end);
      steps_.push_back({TreeInstruction::Kind::kAddTop, 0, 0});
    }
  }

  std::vector<TreeInstruction> take() { return std::move(steps_); }

 private:
  const TreeNode& leaf(size_t i) const { return leaves_[order_[i]]; }

  std::span<const TreeNode> leaves_;
  std::vector<uint32_t> order_;
  std::vector<TreeInstruction> steps_;
};

}  // namespace

std::vector<TreeInstruction> plan_tree(std::span<const TreeNode> leaves) {
  if (leaves.empty()) return {};
  std::vector<uint32_t> order = order_of(leaves);
  for (size_t i = 1; i < order.size(); ++i) {
    if (leaves[order[i]].first < end_of(leaves[order[i - 1]])) {
      throw UsageError(
          fmt::format("exact sum: shard {} was contributed twice", leaves[order[i]].first),
          ExitCode::kMismatch);
    }
  }
  Planner planner(leaves, std::move(order));
  planner.emit(0, leaves.size());
  return planner.take();
}

std::vector<std::vector<OwnedNode>> fold_by_owner(std::span<const TreeNode> leaves,
                                                  std::span<const size_t> owners, size_t count) {
  std::vector<std::vector<OwnedNode>> folded(count);
  const std::vector<uint32_t> order = order_of(leaves);
  const auto leaf = [&](size_t i) { return leaves[order[i]]; };
  const auto fold = [&](const auto& self, size_t begin, size_t end) -> void {
    const size_t owner = owners[order[begin]];
    const bool is_pure = std::all_of(order.begin() + static_cast<ptrdiff_t>(begin),
                                     order.begin() + static_cast<ptrdiff_t>(end),
                                     [&](uint32_t i) { return owners[i] == owner; });
    if (!is_pure) {
      const size_t middle = split(begin, end, leaf);
      self(self, begin, middle);
      self(self, middle, end);
      return;
    }
    OwnedNode owned{leaf(begin), {}};
    const uint64_t last = end_of(leaf(end - 1)) - 1;
    while (end_of(owned.node) <= last)
      owned.node = {(owned.node.first >> (owned.node.level + 1)) << (owned.node.level + 1),
                    owned.node.level + 1};
    for (size_t i = begin; i < end; ++i) owned.leaves.push_back(order[i]);
    folded[owner].push_back(std::move(owned));
  };
  if (!leaves.empty()) fold(fold, 0, leaves.size());
  return folded;
}

uint32_t most_nodes_of_a_run(uint64_t shards) {
  return shards <= 2 ? 1 : 2 * static_cast<uint32_t>(std::bit_width(shards - 1));
}

std::string check_dealing(const std::vector<std::vector<TreeNode>>& nodes,
                          std::span<const int> ranks, uint64_t shards) {
  const uint32_t most = most_nodes_of_a_run(shards);
  std::vector<std::pair<uint64_t, size_t>> holders;  // first shard of every node, and who has it
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const TreeNode& node : nodes[i]) holders.emplace_back(node.first, i);
  }
  std::sort(holders.begin(), holders.end());
  std::vector<size_t> runs(nodes.size(), 0);
  for (size_t k = 0; k < holders.size(); ++k) {
    if (k == 0 || holders[k].second != holders[k - 1].second) ++runs[holders[k].second];
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].size() <= most || runs[i] <= 1) continue;
    return fmt::format(
        "exact sum: rank {} has {} arrays of {} shards to send, because other ranks' shards lie "
        "between its own; give each rank a contiguous block of shards, which needs at most {} "
        "(one, if {} shards begin at a multiple of {})",
        ranks[i], nodes[i].size(), shards, most, std::bit_floor(shards / nodes.size()),
        std::bit_floor(shards / nodes.size()));
  }
  return "";
}

uint32_t tree_depth(std::span<const TreeInstruction> instructions) {
  uint32_t depth = 0;
  uint32_t highest = 0;
  for (const TreeInstruction& one : instructions) {
    if (one.kind == TreeInstruction::Kind::kPush || one.kind == TreeInstruction::Kind::kPushSum)
      ++depth;
    if (one.kind == TreeInstruction::Kind::kAddTop) --depth;
    highest = std::max(highest, depth);
  }
  return highest;
}

TreeNode promote(TreeNode node, uint64_t shards) {
  while (node.level < 63) {
    const uint64_t other = sibling_first(node);
    const bool is_root = node.first == 0 && end_of(node) >= shards;
    if (is_root || other < node.first || other < shards) return node;
    ++node.level;
  }
  return node;
}

}  // namespace horon
