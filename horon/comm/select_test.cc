#include "horon/comm/select.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "horon/base/error.h"
#include "horon/base/knob.h"
#include "horon/comm/channel.h"

namespace horon {
namespace {

Algorithm choose(std::string_view backend, OpKind kind, uint64_t bytes, int ranks,
                 const std::string& text = "") {
  return AlgorithmTable(text, 384).choose(
      {.kind = kind, .backend = backend, .bytes = bytes, .ranks = ranks});
}

TEST(Select, FollowsTheTable) {
  EXPECT_EQ(choose("gloo", OpKind::kAllReduce, 100, 2), Algorithm::kInline);
  EXPECT_EQ(choose("gloo", OpKind::kAllReduce, 4096, 2), Algorithm::kOneShot);
  EXPECT_EQ(choose("gloo", OpKind::kAllReduce, 4096, 9), Algorithm::kTwoShot);
  EXPECT_EQ(choose("mpi", OpKind::kAllReduce, 1 << 20, 2), Algorithm::kTwoShot);
  EXPECT_EQ(choose("hier(shm+gloo)", OpKind::kAllReduce, 1 << 20, 4), Algorithm::kTwoLevel);
  EXPECT_EQ(choose("gloo", OpKind::kBroadcast, 1 << 10, 4), Algorithm::kTree);
  EXPECT_EQ(choose("gloo", OpKind::kAllToAll, 100, 4), Algorithm::kDefault);
}

TEST(Select, TheOverrideWins) {
  EXPECT_EQ(choose("gloo", OpKind::kAllReduce, 100, 2, "all_reduce=two_shot"), Algorithm::kTwoShot);
  EXPECT_EQ(choose("gloo", OpKind::kBroadcast, 1 << 20, 4, "all_reduce=two_shot, broadcast=tree"),
            Algorithm::kTree);
  // What does not fit into a header cannot travel with it.
  EXPECT_EQ(choose("gloo", OpKind::kAllReduce, 1 << 20, 2, "all_reduce=inline"),
            Algorithm::kTwoShot);
  EXPECT_NE(AlgorithmTable("all_reduce=two_shot", 384).fingerprint(),
            AlgorithmTable("", 384).fingerprint());
}

TEST(Select, RefusesNonsense) {
  EXPECT_THROW(AlgorithmTable("all_reduce=magic", 384), UsageError);
  EXPECT_THROW(AlgorithmTable("all_reduce=tree", 384), UsageError);
  EXPECT_THROW(AlgorithmTable("fly=inline", 384), UsageError);
  EXPECT_THROW(AlgorithmTable("all_to_all=inline", 384), UsageError);
  EXPECT_THROW(AlgorithmTable("all_reduce", 384), UsageError);
}

// The setting allows what the table has, and nothing else.
TEST(Select, TheSettingKnowsTheTable) {
  std::set<std::string> has;
  for (const char* kind :
       {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"}) {
    for (int algorithm = 0; algorithm <= static_cast<int>(Algorithm::kNative); ++algorithm) {
      const std::string text =
          fmt::format("{}={}", kind, name_of(static_cast<Algorithm>(algorithm)));
      try {
        const AlgorithmTable table(text, 384);
        has.insert(text);
      } catch (const UsageError&) {  // the operation does not have it
      }
    }
  }
  const auto allowed = knob_words("algorithm");
  EXPECT_EQ(std::set<std::string>(allowed.begin(), allowed.end()), has);
}

TEST(Select, PrintsItself) {
  EXPECT_NE(AlgorithmTable::print().find("two_level"), std::string::npos);
}

TEST(Cut, CoversEverythingOnce) {
  for (uint64_t count : {0ULL, 1ULL, 63ULL, 64ULL, 65ULL, 1000ULL, (1ULL << 33) + 7}) {
    for (size_t parts : {1U, 2U, 3U, 8U}) {
      const auto runs = cut_evenly(count, parts, 64);
      ASSERT_EQ(runs.size(), parts + 1);
      EXPECT_EQ(runs.front(), 0U);
      EXPECT_EQ(runs.back(), count);
      for (size_t i = 0; i < parts; ++i) EXPECT_LE(runs[i], runs[i + 1]);
    }
  }
}

}  // namespace
}  // namespace horon
