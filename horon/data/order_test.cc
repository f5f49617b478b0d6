#include "horon/data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "horon/base/error.h"
#include "horon/data/random.h"

namespace horon {
namespace {

TEST(Philox, MatchesPublishedVectors) {
  // From the authors' test vectors.
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Draws, AreUniformAndIndependent) {
  std::vector<int> counts(7);
  Draws draws(1, 2, 3, 4);
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 70'000; ++i) {
    ++counts[draws.below(7)];
    const double normal = draws.normal();
    sum += normal;
    squares += normal * normal;
    const float unit = draws.unit();
    ASSERT_TRUE(unit >= 0.0F && unit < 1.0F);
  }
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 400);
  EXPECT_NEAR(sum / 70'000, 0.0, 0.02);
  EXPECT_NEAR(squares / 70'000, 1.0, 0.03);
  std::set<uint32_t> firsts;
  for (uint64_t i = 0; i < 10; ++i) {
    firsts.insert(Draws(i, 0, 0, 0).word());
    firsts.insert(Draws(0, i + 1, 0, 0).word());
    firsts.insert(Draws(0, 0, i + 1, 0).word());
    firsts.insert(Draws(0, 0, 0, static_cast<uint32_t>(i) + 1).word());
  }
  EXPECT_EQ(firsts.size(), 40U);
}

TEST(Permutations, AreOnesOfAnySize) {
  for (const uint64_t size : {1U, 2U, 3U, 7U, 64U, 100U, 1000U, 50'003U}) {
    const Permutation order(size, 42, 1);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t at = order.at(i);
      ASSERT_LT(at, size);
      ASSERT_FALSE(seen[at]);
      seen[at] = true;
    }
  }
  EXPECT_THROW(Permutation(5, 0, 0).at(5), UsageError);
}

// Where samples land is spread evenly, neighbours do not stay together, epochs differ.
TEST(Permutations, LookRandom) {
  constexpr uint64_t kSize = 10'000;
  double chi = 0;
  std::vector<int> cells(100);
  uint64_t near = 0;
  uint64_t same = 0;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    const Permutation order(kSize, 7, epoch);
    const Permutation next(kSize, 7, epoch + 1);
    for (uint64_t i = 0; i + 1 < kSize; ++i) {
      const uint64_t at = order.at(i);
      ++cells[i / 1000 * 10 + at / 1000];
      const auto distance =
          std::llabs(static_cast<int64_t>(at) - static_cast<int64_t>(order.at(i + 1)));
      near += distance <= 10 ? 1 : 0;
      same += at == next.at(i) ? 1 : 0;
    }
  }
  for (const int cell : cells) chi += (cell - 2000.0) * (cell - 2000.0) / 2000.0;
  EXPECT_LT(chi, 150.0);  // 81 degrees of freedom
  EXPECT_NEAR(static_cast<double>(near), 20 * kSize * 20.0 / kSize, 100.0);
  EXPECT_LT(same, 60U);  // 20 expected
}

TEST(Cut, RangesAreEvenAndComplete) {
  for (const uint64_t count : {0U, 1U, 7U, 8U, 100U}) {
    for (const uint64_t parts : {1U, 2U, 3U, 7U, 8U, 9U}) {
      uint64_t at = 0;
      for (uint64_t part = 0; part < parts; ++part) {
        const Range range = cut(count, parts, part);
        EXPECT_EQ(range.first, at);
        EXPECT_LE(range.size(), count / parts + 1);
        EXPECT_GE(range.size() + 1, count / parts + 1);
        at = range.last;
      }
      EXPECT_EQ(at, count);
    }
  }
}

// Every sample of every epoch exactly once, whoever reads it, also after going on with other ranks.
TEST(Coverage, ExactlyOnceOnAnyNumberOfRanks) {
  for (const uint64_t samples : {1U, 7U, 50'000U, 50'003U}) {
    for (int ranks = 1; ranks <= 7; ++ranks) {
      for (const uint64_t batch : {1U, 64U, 129U, 100'000U}) {
        if (batch == 1 && samples > 100) continue;
        const BatchOptions batching{.samples = samples, .batch = batch};
        std::vector<uint8_t> seen(samples);
        Position at;
        int now = ranks;
        uint64_t batches = 0;
        while (at.epoch < 3) {
          const auto order = make_epoch_order(samples, {}, at.epoch, {.seed = 5});
          const uint64_t epoch = at.epoch;
          Position after;
          uint64_t count = 0;
          for (int rank = 0; rank < now; ++rank) {
            const BatchPart part = plan_batch(at, batching, rank, now);
            for (const Range& range : part.shards)
              for (uint64_t i = range.first; i < range.last; ++i) ++seen[order->at(i)];
            count += part.count();
            after = part.after;
          }
          EXPECT_LE(count, batch);
          at = after;
          if (++batches % 5 == 0) now = 1 + (now + 3) % 7;  // stop here, go on with others
          if (at.epoch == epoch) continue;
          ASSERT_TRUE(std::all_of(seen.begin(), seen.end(),
                                  [&](int times) { return times == static_cast<int>(at.epoch); }))
              << samples << " samples, batch " << batch << ", epoch " << epoch;
        }
      }
    }
  }
}

TEST(Coverage, LogicalShardsAreTheSameOnAnyNumberOfRanks) {
  const BatchOptions batching{.samples = 1003, .batch = 100, .shards = 8};
  for (Position at; at.epoch < 1;) {
    std::vector<Range> whole = plan_batch(at, batching, 0, 1).shards;
    for (const int ranks : {2, 3, 5, 8}) {
      std::vector<Range> together;
      for (int rank = 0; rank < ranks; ++rank)
        for (const Range& range : plan_batch(at, batching, rank, ranks).shards)
          together.push_back(range);
      ASSERT_EQ(together.size(), 8U);
      for (size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(together[i].first, whole[i].first);
        EXPECT_EQ(together[i].last, whole[i].last);
      }
    }
    at = plan_batch(at, batching, 0, 1).after;
  }
  EXPECT_THROW(plan_batch({}, batching, 0, 9), UsageError);
  EXPECT_THROW(plan_batch({}, {.samples = 10, .batch = 0}, 0, 1), UsageError);
  EXPECT_THROW(plan_batch({}, {.samples = 10, .batch = 11, .drops_remainder = true}, 0, 1),
               UsageError);
  EXPECT_EQ(batches_in_epoch({.samples = 103, .batch = 10, .drops_remainder = true}), 10U);
  EXPECT_EQ(batches_in_epoch({.samples = 103, .batch = 10}), 11U);
}

// No shard of one sample: a rest of 3 is one shard, a rest of 1 belongs to the batch before.
TEST(Coverage, ShardsHaveASmallestSize) {
  for (uint64_t samples = 2; samples < 60; ++samples) {
    const BatchOptions batching{.samples = samples, .batch = 16, .shards = 8, .smallest = 2};
    uint64_t batches = 0;
    std::vector<int> seen(samples);
    for (Position at; at.epoch == 0; ++batches) {
      Position after;
      for (int rank = 0; rank < 3; ++rank) {
        const BatchPart part = plan_batch(at, batching, rank, 3);
        for (const Range& range : part.shards) {
          EXPECT_NE(range.size(), 1U) << samples;
          for (uint64_t i = range.first; i < range.last; ++i) ++seen[i];
        }
        after = part.after;
      }
      at = after;
    }
    EXPECT_EQ(batches, batches_in_epoch(batching)) << samples;
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }))
        << samples;
  }
}

TEST(Chunks, EverySampleOccursOnceAndNeighboursShareFewChunks) {
  std::vector<uint64_t> chunks;
  for (uint64_t i = 0; i < 200; ++i) chunks.push_back(20 + i * 7 % 31);
  const uint64_t size = std::accumulate(chunks.begin(), chunks.end(), uint64_t{0});
  const auto order = make_epoch_order(size, chunks, 3, {.seed = 9, .window_chunks = 8});
  std::vector<bool> seen(size);
  std::vector<uint64_t> chunk_of;
  for (uint64_t c = 0; c < chunks.size(); ++c) chunk_of.insert(chunk_of.end(), chunks[c], c);
  for (uint64_t i = 0; i < size; ++i) {
    ASSERT_FALSE(seen[order->at(i)]);
    seen[order->at(i)] = true;
  }
  std::set<uint64_t> touched;  // in any stretch of 100 samples: two windows at most
  for (uint64_t i = 0; i < 100; ++i) touched.insert(chunk_of[order->at(i)]);
  EXPECT_LE(touched.size(), 16U);
  EXPECT_GE(touched.size(), 5U);
  const auto other = make_epoch_order(size, chunks, 4, {.seed = 9, .window_chunks = 8});
  uint64_t same = 0;
  for (uint64_t i = 0; i < size; ++i) same += order->at(i) == other->at(i) ? 1 : 0;
  EXPECT_LT(same, 20U);
  EXPECT_THROW(make_epoch_order(size + 1, chunks, 0, {}), UsageError);
  EXPECT_EQ(make_epoch_order(10, {}, 0, {.shuffles = false})->at(7), 7U);
}

TEST(SplitMethods, OtherMethodsMissAndRepeatSamples) {
  const BatchOptions batching{.samples = 1003, .batch = 32};
  const auto count = [&](SplitMethod way, uint64_t& missed, uint64_t& repeated) {
    std::vector<int> times(1003);
    for (int rank = 0; rank < 4; ++rank)
      for (const uint64_t sample : samples_of_rank(way, batching, 0, 1, rank, 4)) ++times[sample];
    missed = static_cast<uint64_t>(std::count(times.begin(), times.end(), 0));
    repeated = static_cast<uint64_t>(
        std::count_if(times.begin(), times.end(), [](int n) { return n > 1; }));
  };
  uint64_t missed = 0;
  uint64_t repeated = 0;
  count(SplitMethod::kGlobal, missed, repeated);
  EXPECT_EQ(missed + repeated, 0U);
  count(SplitMethod::kSplitSteps, missed, repeated);
  EXPECT_NEAR(static_cast<double>(missed), 1003 * std::pow(0.75, 4), 60);
  EXPECT_GT(repeated, 200U);
  count(SplitMethod::kSplitEpochs, missed, repeated);
  EXPECT_EQ(missed, 0U);
  EXPECT_EQ(repeated, 1003U);
  count(SplitMethod::kFixedShard, missed, repeated);
  EXPECT_EQ(repeated, 0U);
  EXPECT_EQ(missed, 1003U - 4 * 248);
  EXPECT_THROW(parse_split_method("glabal"), UsageError);
}

}  // namespace
}  // namespace horon
