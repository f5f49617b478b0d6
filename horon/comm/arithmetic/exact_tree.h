#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

// The exact sum, defined over shard ids 0..L-1 as
//   node(level, k) = node(level-1, 2k) + node(level-1, 2k+1),
// where a missing child passes its sibling through. The bits depend only on the contributions and
// their ids. Everything here is pure.
namespace horon {

// The sum of the shards [first, first + 2^level) that exist.
struct TreeNode {
  uint64_t first = 0;
  uint32_t level = 0;
  bool operator==(const TreeNode&) const = default;
};

// One instruction of a stack machine over arrays.
struct TreeInstruction {
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

// The instructions that finish the tree from these leaves (in any order). Throws UsageError if two
// of them contain the same shard. No leaves: no instructions.
std::vector<TreeInstruction> plan_tree(std::span<const TreeNode> leaves);

// A node whose shards all belong to one owner, and the leaves that it is the sum of.
struct OwnedNode {
  TreeNode node;
  std::vector<uint32_t> leaves;  // indices into the leaves
};
// The largest such nodes of the tree over these leaves, by owner: every owner can sum its own
// before anything is exchanged, and the tree over the results has the same bits. owners[i] <
// `count` owns leaf i.
std::vector<std::vector<OwnedNode>> fold_by_owner(std::span<const TreeNode> leaves,
                                                  std::span<const size_t> owners, size_t count);

// Maximum number of nodes for a contiguous range of shards.
uint32_t most_nodes_of_a_run(uint64_t shards);

// Every node is an array, in memory and in transfer, so round-robin shards cost as many arrays as
// shards. Returns empty if the distribution is acceptable: each member has at most
// most_nodes_of_a_run() nodes, or no other member's shards between its own. Otherwise the error
// message; nodes[i] belong to rank ranks[i].
std::string check_dealing(const std::vector<std::vector<TreeNode>>& nodes,
                          std::span<const int> ranks, uint64_t shards);

// Maximum number of arrays on the stack during the instructions.
uint32_t tree_depth(std::span<const TreeInstruction> instructions);

// Replaces `node` by its parent as long as its sibling is beyond the last shard: the highest node
// that this array represents.
TreeNode promote(TreeNode node, uint64_t shards);

// First shard of the sibling.
inline uint64_t sibling_first(TreeNode node) { return node.first ^ (1ULL << node.level); }

}  // namespace horon
