#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

// The exact sum as a value: over shard ids 0..L-1,
//   node(level, k) = node(level-1, 2k) + node(level-1, 2k+1),
// an absent child passes its sibling through. The bits depend on the contributions and their ids
// alone. Everything here is pure.
namespace horon {

// The sum of the shards [first, first + 2^level) that exist.
struct TreeNode {
  uint64_t first = 0;
  uint32_t level = 0;
  bool operator==(const TreeNode&) const = default;
};

// One instruction of a stack machine over arrays.
struct TreeStep {
  enum class Kind : uint8_t {
    kPush,     // push leaf a
    kPushSum,  // push leaf a + leaf b
    kAddLeaf,  // top += leaf a
    kAddTop,   // pop x; top += x
  };
  Kind kind = Kind::kPush;
  uint32_t a = 0;
  uint32_t b = 0;
};

// How to finish the tree from these leaves (in any order). Throws UsageError if two of them hold
// the same shard. No leaves: no steps.
std::vector<TreeStep> plan_tree(std::span<const TreeNode> leaves);

// A contiguous run of shards needs at most this many nodes.
uint32_t most_nodes_of_a_run(uint64_t shards);

// Every node is an array of its own, in memory and on its way, so shards that were dealt like cards
// cost as many as there are shards. Empty if they were not: each member has at most
// most_nodes_of_a_run() nodes, or no other member's shards between its own. Otherwise the message
// of an error; nodes[i] are those of rank ranks[i].
std::string check_dealing(const std::vector<std::vector<TreeNode>>& nodes,
                          std::span<const int> ranks, uint64_t shards);

// Highest number of arrays on the stack while the steps run.
uint32_t tree_depth(std::span<const TreeStep> steps);

// The parent of `node` if its sibling lies beyond the last shard, again and again: what a node that
// is alone may already be called.
TreeNode promote(TreeNode node, uint64_t shards);

// First shard of the other half of the parent.
inline uint64_t sibling_first(TreeNode node) { return node.first ^ (1ULL << node.level); }

}  // namespace horon
