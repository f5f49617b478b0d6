#include "horon/runtime/trace.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/fd.h"

namespace horon {
namespace {

TraceEvent event(const std::string& name, int64_t begun) {
  TraceEvent one;
  std::strncpy(one.name, name.c_str(), sizeof(one.name) - 1);
  one.kind = OpKind::kAllReduce;
  one.bytes = 100;
  one.submitted_ns = begun - 500;
  one.begun_ns = begun;
  one.ended_ns = begun + 2000;
  return one;
}

TEST(Recorder, KeepsTheLastOnes) {
  Recorder recorder(3, 4);
  EXPECT_TRUE(recorder.last().empty());
  for (int i = 0; i < 10; ++i) recorder.record(event("op" + std::to_string(i), 1000 * i));
  const auto last = recorder.last();
  ASSERT_EQ(last.size(), 4U);
  EXPECT_STREQ(last.front().name, "op6");
  EXPECT_STREQ(last.back().name, "op9");
  EXPECT_NE(recorder.describe().find("op9"), std::string::npos);
  EXPECT_NE(recorder.describe().find("rank 3"), std::string::npos);
}

TEST(Timeline, RanksAreMergedInOneClock) {
  const TempFolder folder;
  std::vector<TimelineText> texts;
  for (int rank = 0; rank < 2; ++rank) {
    const int64_t shift = rank * 5'000'000;  // this host's clock is ahead
    const std::string path = folder.path() + "/t." + std::to_string(rank);
    Recorder recorder(rank);
    recorder.record(event("before", 0));  // not in the timeline
    recorder.start_timeline(path, {1000 + shift, 2000 + shift, 3001 + shift});
    EXPECT_THROW(recorder.start_timeline(path, {}), UsageError);
    recorder.record(event("na\"me\xff", 10'000 + shift));
    recorder.stop_timeline();
    recorder.record(event("after", 0));
    texts.push_back({path, read_small_file(path)});
  }
  const auto merged = nlohmann::json::parse(merge_timelines({texts[1], texts[0]}));
  const auto& events = merged["traceEvents"];
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0]["args"]["name"], "rank 0");
  EXPECT_DOUBLE_EQ(events[1]["ts"].get<double>(), 10.0);
  EXPECT_DOUBLE_EQ(events[1]["dur"].get<double>(), 2.0);
  EXPECT_NEAR(events[3]["ts"].get<double>(), 10.0, 0.01);
  EXPECT_EQ(events[3]["pid"], 1);
}

TEST(Timeline, BadFilesAreNamedWithTheirLine) {
  const std::string head = "{\"horon_timeline\":1,\"rank\":0,\"sync_ns\":[1]}\n";
  const auto why = [](const std::string& text) {
    try {
      merge_timelines({{"file", text}});
      return std::string();
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(why(head), "");
  EXPECT_NE(why("{\"horon_timeline\":1,").find("file:1"), std::string::npos);
  EXPECT_NE(why(head + "{\"ts\":\n").find("file:2"), std::string::npos);
  EXPECT_NE(why("").find("file: empty"), std::string::npos);
  EXPECT_NE(why("hello\n").find("file:1"), std::string::npos);
  EXPECT_NE(why(head + "{}\n").find("file:2"), std::string::npos);
  EXPECT_NE(why(head + "{\"ts\":\"x\"}\n").find("file:2"), std::string::npos);
  EXPECT_NE(why("{\"horon_timeline\":1,\"rank\":0,\"sync_ns\":[]}\n").find("shared moments"),
            std::string::npos);
  EXPECT_THROW(merge_timelines({}), UsageError);
  EXPECT_THROW(merge_timelines({{"one", head}, {"two", head}}), UsageError) << "one rank twice";
  std::vector<std::string> notes;  // of a rank that was killed while it wrote
  const auto merged =
      nlohmann::json::parse(merge_timelines({{"file", head + "{\"ts\":1}\n{\"ts\":"}}, &notes));
  EXPECT_EQ(merged["traceEvents"].size(), 2U);
  EXPECT_EQ(notes, std::vector<std::string>{"file:3: cut off, left out"});
  Recorder recorder(0);
  EXPECT_THROW(recorder.start_timeline("/no/such/folder/t", {1}), IoError);
}

}  // namespace
}  // namespace horon
