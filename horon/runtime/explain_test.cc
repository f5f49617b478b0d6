#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <mutex>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/runtime/autotune.h"
#include "horon/runtime/detail_on_ranks.h"
#include "horon/runtime/stall.h"
#include "horon/runtime/trace.h"

namespace horon {
namespace {

TEST(RuntimeTrace, EachRankWritesItsTimeline) {
  const TempFolder folder;
  on_ranks(2, [&](Runtime& runtime) {
    runtime.start_timeline(folder.path() + "/t");
    std::vector<float> data(10, 1.0F);
    for (int i = 0; i < 3; ++i) runtime.run_all_reduce("loss", view_of(data));
    runtime.stop_timeline();
    EXPECT_NE(runtime.describe_last().find("loss"), std::string::npos);
  });
  std::vector<TimelineText> texts;
  for (const char* rank : {"0", "1"}) {
    const std::string path = folder.path() + "/t." + rank;
    texts.push_back({path, read_small_file(path)});
  }
  const std::string merged = merge_timelines(texts);
  size_t count = 0;
  for (size_t at = merged.find("\"loss\""); at != std::string::npos;
       at = merged.find("\"loss\"", at + 1))
    ++count;
  EXPECT_EQ(count, 6U);
}

TEST(RuntimeStall, SaysWhoHasNotSubmittedWhat) {
  const auto store = make_memory_store();
  std::mutex mutex;
  std::vector<std::string> lines;
  RuntimeOptions options;
  options.store = store;
  options.stall.ask_after = Milliseconds(50);
  options.stall.warn_after = Milliseconds(200);
  options.warn = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  on_ranks(
      3,
      [&](Runtime& runtime) {
        std::vector<float> data(3, 1.0F);
        runtime.run_all_reduce("conv4", view_of(data));
        // Rank 1 is alive but busy: it is waited for, and named.
        while (runtime.rank() == 1) {
          const std::lock_guard lock(mutex);
          if (lines.size() >= 2) break;
        }
        runtime.run_all_reduce("fc.weight", view_of(data));
      },
      options);
  ASSERT_GE(lines.size(), 2U);
  EXPECT_NE(lines[0].find("waiting for 'fc.weight'"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("rank 1 has not submitted it; rank 1 last finished 'conv4'"),
            std::string::npos)
      << lines[0];
}

TEST(RuntimeStall, AStragglerIsNamedWithinTwentySteps) {
  std::mutex mutex;
  std::vector<std::string> lines;
  RuntimeOptions options;
  options.warn = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  on_ranks(
      3,
      [&](Runtime& runtime) {
        for (int step = 0; step < 20; ++step) {
          std::vector<float> data(3, 1.0F);
          std::this_thread::sleep_for(Milliseconds(runtime.rank() == 1 ? 12 : 4));  // its work
          runtime.run_all_reduce("x", view_of(data));
        }
        if (runtime.rank() != 1) {
          const std::vector<uint64_t> waited = runtime.counters().waited_us;
          EXPECT_GT(waited.at(1), 50'000U);
          EXPECT_LT(waited[0] + waited[2], waited[1] / 2);
        }
      },
      options);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("rank 1 is slow"), std::string::npos) << lines[0];
}

TEST(RuntimeStall, ExplanationNamesTheRanksThatHaveNotSubmitted) {
  RankState has{{"x"}, "y", 2000};
  RankState lacks{{}, "conv4", 12'300};
  EXPECT_EQ(explain_wait("x", Milliseconds(10'500), {1, 2, 3}, {lacks, has, lacks}),
            "waiting for 'x' for 10 s: ranks 1, 3 have not submitted it; rank 1 last finished "
            "'conv4' 12.3 s ago; "
            "rank 3 last finished 'conv4' 12.3 s ago");
  EXPECT_EQ(explain_wait("x", Milliseconds(5000), {1}, {std::nullopt}),
            "waiting for 'x' for 5 s: rank 1 does not answer");
  EXPECT_EQ(unpack_state(pack_state(lacks)).last_ms, 12'300);
}

TEST(RuntimeStall, ASilentRankEndsTheOperation) {
  const auto store = make_memory_store();
  auto world = make_local_world(2);
  RuntimeOptions options;
  options.store = store;
  options.stall.ask_after = Milliseconds(50);
  options.stall.silence = Milliseconds(200);
  options.warn = [](const std::string&) {};
  // Rank 1 has no runtime that could answer.
  Runtime runtime(std::move(world[0]), options);
  std::vector<float> data(3, 1.0F);
  const Stopwatch watch;
  try {
    runtime.run_all_reduce("x", view_of(data));
    FAIL() << "summed with nobody";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.ranks(), std::vector<int>{1});
  }
  EXPECT_LT(watch.seconds(), 5.0);
}

// A store that takes everything and answers nothing, as that of a stopped process does.
class StoppedStore final : public Store {
  void do_set(const std::string&, const std::string&, Deadline) override { give_up(); }
  std::string do_get(const std::string&, Deadline) override { give_up(); }
  int64_t do_add(const std::string&, int64_t, Deadline) override { give_up(); }
  bool do_remove(const std::string&, Deadline) override { give_up(); }
  [[noreturn]] static void give_up() { throw TimeoutError("the store does not answer"); }
};

TEST(RuntimeStall, AStoreThatDoesNotAnswerIsTheSilenceOfTheRankThatServesIt) {
  auto world = make_local_world(3);
  std::string said;
  RuntimeOptions options;
  options.store = std::make_shared<StoppedStore>();
  options.stall.store_rank = 0;
  options.stall.ask_after = Milliseconds(50);
  options.stall.silence = Milliseconds(100);
  options.warn = [&](const std::string& line) { said += line; };
  Runtime runtime(std::move(world[1]), options);
  std::vector<float> data(3, 1.0F);
  try {
    runtime.run_all_reduce("x", view_of(data));
    FAIL() << "summed with nobody";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.ranks(), std::vector<int>{0});
  }
  EXPECT_NE(said.find("rank 0 does not answer"), std::string::npos) << said;
  EXPECT_EQ(said.find("not submitted"), std::string::npos) << said;
}

TEST(Autotune, KeepsTheStartUnlessAnotherIsClearlyBetter) {
  const auto tune = [](double start, double other) {
    Tuner tuner({25, 1}, {{10, 1}, {25, 1}}, 3);
    EXPECT_EQ(tuner.current().bucket_bytes, 25U);
    int steps = 0;
    while (!tuner.done()) {
      tuner.add(tuner.current().bucket_bytes == 25 ? start : other);
      ++steps;
    }
    EXPECT_EQ(steps, 2 * (2 + 3));
    return tuner.best().bucket_bytes;
  };
  EXPECT_EQ(tune(1.0, 0.5), 10U);
  EXPECT_EQ(tune(1.0, 0.99), 25U);
  EXPECT_EQ(tune(1.0, 2.0), 25U);
}

TEST(Autotune, TriesOnRealStepsAndRemembers) {
  const TempFolder folder;
  RuntimeOptions options;
  options.autotune_file = folder.path() + "/tuned.json";
  options.limits.first_bytes = 1;
  options.warn = [](const std::string&) {};
  std::string codec;
  const auto train = [&](int steps) {
    on_ranks(
        2,
        [&](Runtime& runtime) {
          for (int step = 0; step < steps; ++step) {
            std::vector<std::vector<float>> data(6, std::vector<float>(1000, 1.0F));
            std::vector<Work> works;
            for (size_t i = 0; i < data.size(); ++i)
              works.push_back(
                  runtime.all_reduce("t" + std::to_string(i), view_of(data[i]), {.codec = codec}));
            for (const Work& work : works) work.wait();
            for (const auto& one : data) expect_all(one, 2.0F);
          }
        },
        options);
  };
  train(80);
  EXPECT_TRUE(read_tuning(options.autotune_file, "2 ranks, local"))
      << read_small_file(options.autotune_file);
  train(10);
  EXPECT_FALSE(read_tuning(options.autotune_file, "3 ranks, local"));
  // With a codec there is twice and three times as much to try: more steps.
  std::filesystem::remove(options.autotune_file);
  codec = "bf16";
  train(80);
  EXPECT_FALSE(read_tuning(options.autotune_file, "2 ranks, local"));
  train(200);
  const auto found = read_tuning(options.autotune_file, "2 ranks, local");
  ASSERT_TRUE(found);
  EXPECT_GE(found->codec_threads, 1);
  // Declared buckets are never moved: nothing is tried, nothing copied.
  std::filesystem::remove(options.autotune_file);
  on_ranks(
      2,
      [](Runtime& runtime) {
        std::vector<TensorSpec> specs(2);
        specs[0].name = "a";
        specs[1].name = "b";
        specs[0].count = specs[1].count = 2U << 20;
        const BucketMemory memory = runtime.allocate_buckets(specs);
        for (int step = 0; step < 80; ++step) {
          const Work first = runtime.all_reduce("a", memory.views[0]);
          const Work second = runtime.all_reduce("b", memory.views[1]);
          first.wait();
          second.wait();
        }
        EXPECT_EQ(runtime.counters().bytes_copied, 0U);
      },
      options);
  EXPECT_FALSE(std::filesystem::exists(options.autotune_file));
  EXPECT_FALSE(read_tuning("/no/such/file", "x"));
}

// AddressSanitizer keeps 256 MB of what was freed; ThreadSanitizer some, too.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long kGrowthKb = 320L << 10;
#else
constexpr long kGrowthKb = 1024;
#endif

long resident_kb() {
  std::ifstream statm("/proc/self/statm");
  long total = 0;
  long resident = 0;
  statm >> total >> resident;
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

TEST(RuntimeSoak, ThousandsOfStepsLeaveNothingBehind) {
  const auto entries = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  };
  on_ranks(2, [&](Runtime& runtime) {
    long descriptors = 0;
    long threads = 0;
    long memory = 0;
    for (int step = 0; step < 10'000; ++step) {
      std::vector<float> a(5, 1.0F);
      std::vector<float> b(6, 1.0F);
      const Work first = runtime.all_reduce("a", view_of(a));
      const Work second = runtime.all_reduce("b", view_of(b));
      first.wait();
      second.wait();
      ASSERT_EQ(a[0] + b[0], 4.0F);
      if (step % 2 == 0)  // a name that never comes again, encoded; and one without a name
        runtime.run_all_reduce(fmt::format("once {}", step), view_of(a), {.codec = "bf16"});
      runtime.run_all_reduce("", view_of(b));
      if (step == 2000 && runtime.rank() == 0) {
        descriptors = entries("/proc/self/fd");
        threads = entries("/proc/self/task");
        memory = resident_kb();
      }
    }
    if (runtime.rank() != 0) return;
    EXPECT_EQ(entries("/proc/self/fd"), descriptors);
    EXPECT_EQ(entries("/proc/self/task"), threads);
    EXPECT_LT(resident_kb() - memory, kGrowthKb) << "memory grows";
    EXPECT_LT(runtime.counters().control_messages, 2U * 5000 + 30);  // two for each new name
  });
}

// A rank that has waited for rank 1 for an hour; each call raises `calls`.
StallMonitor::Events long_wait(const std::shared_ptr<std::atomic<int>>& calls) {
  StallMonitor::Events events;
  events.longest = [] {
    return LongWait{.name = "a", .since = Clock::now() - std::chrono::hours(1), .ranks = {0, 1}};
  };
  events.state = [] { return RankState(); };
  events.warn = [calls](const std::string&) { ++*calls; };
  events.lost = [calls](const std::vector<int>&) { ++*calls; };
  return events;
}

TEST(StallMonitor, EndsAtOnceWhileARankIsSilentAndSaysNoMore) {
  const auto store = make_memory_store();
  const auto calls = std::make_shared<std::atomic<int>>(0);
  StallMonitor::Options options;
  options.ask_after = Milliseconds(1);
  options.silence = Milliseconds(60'000);
  auto monitor = std::make_unique<StallMonitor>(options, store, long_wait(calls));
  store->get("stall/ask/1/0", Deadline::after(std::chrono::seconds(20)));  // rank 1 was asked
  const Stopwatch watch;
  monitor.reset();
  EXPECT_LT(watch.seconds(), 5);
  store->set("stall/answer/0/0/1", pack_state({}), Deadline::after(std::chrono::seconds(20)));
  // Both of the functions above hold one until the last thread has let go of them.
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (calls.use_count() > 1 && !deadline.passed()) std::this_thread::sleep_for(Milliseconds(1));
  EXPECT_EQ(calls.use_count(), 1);
  EXPECT_EQ(*calls, 0);
}

// Its server answers nothing, until it is gone.
class SilentStore final : public Store {
 public:
  void wait_for_calls() { called_.wait(); }  // of both threads
  void go() { gone_.set_value(); }

 private:
  [[noreturn]] void be_silent(Deadline deadline) {
    if (end_.wait_for(deadline.left()) == std::future_status::ready) throw IoError("gone");
    throw TimeoutError("no answer");
  }
  void do_set(const std::string&, const std::string&, Deadline deadline) override {
    be_silent(deadline);
  }
  std::string do_get(const std::string&, Deadline deadline) override {
    called_.count_down();
    be_silent(deadline);
  }
  int64_t do_add(const std::string&, int64_t, Deadline deadline) override {
    called_.count_down();
    be_silent(deadline);
  }
  bool do_remove(const std::string&, Deadline deadline) override { be_silent(deadline); }

  std::latch called_{2};
  std::promise<void> gone_;
  std::shared_future<void> end_ = gone_.get_future().share();
};

TEST(StallMonitor, EndsSoonAlsoIfTheStoreIsSilent) {
  const auto store = std::make_shared<SilentStore>();
  const auto calls = std::make_shared<std::atomic<int>>(0);
  StallMonitor::Options options;
  options.ask_after = Milliseconds(1);
  options.silence = Milliseconds(60'000);
  auto monitor = std::make_unique<StallMonitor>(options, store, long_wait(calls));
  store->wait_for_calls();
  const Stopwatch watch;
  monitor.reset();
  EXPECT_LT(watch.seconds(), 5);
  store->go();
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (calls.use_count() > 1 && !deadline.passed()) std::this_thread::sleep_for(Milliseconds(1));
  EXPECT_EQ(calls.use_count(), 1);
  EXPECT_EQ(*calls, 0);
}

}  // namespace
}  // namespace horon
