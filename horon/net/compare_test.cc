#include "horon/net/compare.h"

#include <gtest/gtest.h>

#include "horon/base/error.h"

namespace horon {
namespace {

TEST(Compare, WhatDiffersIsNamedWithItsRanks) {
  const std::vector<Said> all = {
      {{"a", "1"}, {"b", "x"}}, {{"a", "1"}, {"b", ""}}, {{"a", "1"}, {"b", ""}}};
  EXPECT_EQ(disagreements(all), std::vector<std::string>{"b: x on rank 0, '' on ranks 1, 2"});
  EXPECT_TRUE(disagreements({{{"a", "1"}}, {{"a", "1"}}}).empty());
  EXPECT_EQ(disagreements({{{"a", "1"}}, {}}),
            std::vector<std::string>{"a: 1 on rank 0, not given on rank 1"});
}

TEST(Compare, SettingsAreTheSameIfTheyMeanTheSame) {
  JobSettings one;
  JobSettings other;
  one.set("bucket_bytes", "4MB", "test");
  other.set("bucket_bytes", "4194304", "test");
  other.set("timeout", "7s", "test");  // each rank's own
  EXPECT_EQ(common_settings(one), common_settings(other));
  other.set("bucket_bytes", "4194305", "test");
  EXPECT_NE(common_settings(one), common_settings(other));
}

TEST(Compare, TextsComeBackOrAreRefused) {
  const Said said = {{"a", ""}, {"name", "a value, with = and \n"}};
  EXPECT_EQ(unpack_said(pack_said(said)), said);
  EXPECT_TRUE(unpack_said("").empty());
  for (const std::string& bad : {std::string("a"), std::string("a\0b", 3), std::string("\0", 1)})
    EXPECT_THROW(unpack_said(bad), Error);
}

}  // namespace
}  // namespace horon
