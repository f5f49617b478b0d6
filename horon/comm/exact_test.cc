#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "horon/base/error.h"
#include "horon/comm/arithmetic/exact_tree.h"
#include "horon/comm/arithmetic/reduce.h"
#include "horon/comm/exact_sum.h"

namespace horon {
namespace {

// The definition, written down once more and independently: recursion over shard ids.
template <typename T>
T tree_by_definition(const std::vector<T>& shards, size_t begin, size_t width) {
  if (width == 1) return shards[begin];
  const size_t half = width / 2;
  const T left = tree_by_definition(shards, begin, half);
  if (begin + half >= shards.size()) return left;
  return left + tree_by_definition(shards, begin + half, half);
}

template <typename T>
T definition(const std::vector<T>& shards) {
  size_t width = 1;
  while (width < shards.size()) width *= 2;
  return tree_by_definition(shards, 0, width);
}

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

ExactSum make_sum(uint64_t count, DType dtype, uint64_t shards) {
  return ExactSum(count, dtype, shards,
                  [](uint64_t n, DType type) { return OwnedBuffer::host(n, type); });
}

// Finishes the tree from what several ranks kept.
template <typename T>
T finish(const std::vector<ExactSum>& ranks, DType dtype) {
  std::vector<TreeNode> leaves;
  std::vector<const void*> in;
  for (const ExactSum& rank : ranks) {
    for (const auto& kept : rank.kept()) {
      leaves.push_back(kept.node);
      in.push_back(kept.array.view().data);
    }
  }
  T out = 0;
  const std::array<void*, 1> target = {&out};
  const auto instructions = plan_tree(leaves);
  reduce_tree({.dtype = dtype,
               .divisor = 1,
               .instructions = instructions,
               .in = in,
               .out = target,
               .count = 1});
  return out;
}

// Any number of shards, dealt to any number of ranks in any way and order: always the defined bits.
TEST(ExactTree, BitsDependOnShardsAlone) {
  std::mt19937_64 random(42);
  std::uniform_real_distribution<float> exponent(-30, 30);
  for (int trial = 0; trial < 4000; ++trial) {
    const size_t shards = 1 + random() % 33;
    const size_t ranks = 1 + random() % 8;
    std::vector<float> values(shards);
    for (float& value : values) {
      value = std::pow(10.0F, exponent(random)) * ((random() & 1) != 0 ? 1.0F : -1.0F);
    }
    std::vector<ExactSum> parts;
    for (size_t r = 0; r < ranks; ++r) parts.push_back(make_sum(1, DType::kF32, shards));
    std::vector<size_t> order(shards);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (size_t shard : order) {
      parts[random() % ranks].add(shard, {&values[shard], 1, DType::kF32, {}});
    }
    ASSERT_EQ(bits_of(finish<float>(parts, DType::kF32)), bits_of(definition(values))) << shards;
  }
}

TEST(ExactTree, AlignedBlocksFoldToOneArray) {
  float value = 1;
  for (uint64_t first : {0U, 8U}) {
    ExactSum sum = make_sum(1, DType::kF32, 16);
    for (uint64_t i = 0; i < 8; ++i) sum.add(first + i, {&value, 1, DType::kF32, {}});
    ASSERT_EQ(sum.kept().size(), 1U);
    EXPECT_EQ(sum.kept()[0].node, (TreeNode{first, 3}));
    sum.clear();
    EXPECT_TRUE(sum.kept().empty());
  }
}

TEST(ExactTree, ShardsInOrderKeepFewArrays) {
  float value = 1;
  ExactSum sum = make_sum(1, DType::kF32, 1024);
  size_t most = 0;
  for (uint64_t i = 0; i < 1024; ++i) {
    sum.add(i, {&value, 1, DType::kF32, {}});
    most = std::max(most, sum.kept().size());
  }
  EXPECT_LE(most, 11U);
  EXPECT_EQ(sum.kept().size(), 1U);
}

TEST(ExactTree, RefusesAShardTwice) {
  float value = 1;
  ExactSum sum = make_sum(1, DType::kF32, 8);
  sum.add(3, {&value, 1, DType::kF32, {}});
  EXPECT_THROW(sum.add(3, {&value, 1, DType::kF32, {}}), UsageError);
  EXPECT_THROW(sum.add(8, {&value, 1, DType::kF32, {}}), UsageError);
  const std::vector<TreeNode> overlap = {{0, 2}, {3, 0}};
  EXPECT_THROW(plan_tree(overlap), UsageError);
}

// Shards dealt to ranks in blocks of any length.
std::vector<std::vector<TreeNode>> nodes_in_blocks(uint64_t shards, uint64_t ranks) {
  float value = 1;
  std::vector<std::vector<TreeNode>> nodes(ranks);
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    ExactSum sum = make_sum(1, DType::kF32, shards);
    for (uint64_t i = shards * rank / ranks; i < shards * (rank + 1) / ranks; ++i)
      sum.add(i, {&value, 1, DType::kF32, {}});
    for (const auto& kept : sum.kept()) nodes[rank].push_back(kept.node);
  }
  return nodes;
}

std::vector<int> numbers(size_t count) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(ExactTree, AnyRunOfShardsNeedsFewNodes) {
  float value = 1;
  for (uint64_t shards = 1; shards <= 70; ++shards) {
    for (uint64_t first = 0; first < shards; ++first) {
      ExactSum sum = make_sum(1, DType::kF32, shards);
      for (uint64_t i = first; i < shards; ++i) {
        sum.add(i, {&value, 1, DType::kF32, {}});
        ASSERT_LE(sum.kept().size(), most_nodes_of_a_run(shards)) << first << ".." << i;
      }
    }
  }
  EXPECT_EQ(most_nodes_of_a_run(128), 14U);
}

TEST(ExactTree, BlocksAreAcceptedOnAnyNumberOfRanks) {
  for (uint64_t shards : {1U, 2U, 3U, 8U, 100U, 128U, 1000U}) {
    for (uint64_t ranks = 1; ranks <= std::min<uint64_t>(shards, 50); ++ranks)
      EXPECT_EQ(check_dealing(nodes_in_blocks(shards, ranks), numbers(ranks), shards), "")
          << shards << " on " << ranks;
  }
}

TEST(ExactTree, CardsAreRefusedWithTheNumbers) {
  std::vector<std::vector<TreeNode>> cards(2);
  for (uint64_t shard = 0; shard < 128; ++shard) cards[shard % 2].push_back({shard, 0});
  const std::vector<int> ranks = {3, 5};
  const std::string wrong = check_dealing(cards, ranks, 128);
  for (const char* word : {"rank 3", "64 arrays of 128 shards", "at most 14", "contiguous"})
    EXPECT_NE(wrong.find(word), std::string::npos) << wrong;
  // So few that it does not matter; and shards that nobody has are in nobody's way.
  cards = {{{0, 0}, {2, 0}, {4, 0}, {6, 0}}, {{1, 0}, {3, 0}, {5, 0}, {7, 0}}};
  EXPECT_EQ(check_dealing(cards, ranks, 8), "");
  std::vector<std::vector<TreeNode>> holes(2);
  for (uint64_t shard = 0; shard < 128; shard += 2) holes[shard / 64].push_back({shard, 0});
  EXPECT_EQ(check_dealing(holes, ranks, 128), "");
}

// |error| <= ceil(log2 L) * u * sum |x|, heavy cancellation and 60 decades included; u is half a
// unit in the last place.
template <typename T>
void check_bound(DType dtype, long double unit) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-30, 30);
  for (int trial = 0; trial < 2000; ++trial) {
    const size_t shards = 2 + random() % 63;
    std::vector<T> values(shards);
    for (size_t i = 0; i < shards; ++i) {
      values[i] = static_cast<T>(std::pow(10.0, exponent(random)));
      if (i % 2 == 1) values[i] = -values[i - 1] * (1 + static_cast<T>(0x1p-20));
    }
    std::vector<ExactSum> parts;
    for (int rank = 0; rank < 3; ++rank) parts.push_back(make_sum(1, dtype, shards));
    long double exact = 0;
    long double magnitude = 0;
    for (size_t i = 0; i < shards; ++i) {
      parts[random() % 3].add(i, {&values[i], 1, dtype, {}});
      exact += values[i];
      magnitude += std::fabs(values[i]);
    }
    const long double bound = std::ceil(std::log2(static_cast<double>(shards))) * unit * magnitude;
    ASSERT_LE(std::fabs(static_cast<long double>(finish<T>(parts, dtype)) - exact), bound)
        << shards;
  }
}

TEST(ExactTree, StaysWithinTheDocumentedBound) {
  check_bound<float>(DType::kF32, 0x1p-24L);
  check_bound<double>(DType::kF64, 0x1p-53L + 0x1p-58L);  // the reference rounds, too
}

TEST(ExactTree, NaNIsCanonicalAndInfinityTravels) {
  const float odd_nan = std::bit_cast<float>(0xffc12345U);
  const float inf = std::numeric_limits<float>::infinity();
  const auto sum_of = [](std::vector<float> values) {
    std::vector<ExactSum> parts;
    parts.push_back(make_sum(1, DType::kF32, values.size()));
    for (size_t i = 0; i < values.size(); ++i) parts[0].add(i, {&values[i], 1, DType::kF32, {}});
    return finish<float>(parts, DType::kF32);
  };
  EXPECT_EQ(bits_of(sum_of({1, odd_nan, 2})), 0x7fc00000U);
  EXPECT_EQ(bits_of(sum_of({odd_nan, 1})), 0x7fc00000U);
  EXPECT_EQ(bits_of(sum_of({inf, -inf, 1})), 0x7fc00000U);
  EXPECT_EQ(sum_of({inf, 1, 2}), inf);
  EXPECT_EQ(sum_of({-inf, 1}), -inf);
}

}  // namespace
}  // namespace horon
