#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <random>
#include <thread>

#include "horon/base/error.h"
#include "horon/runtime/detail_on_ranks.h"
#include "horon/runtime/gate.h"
#include "horon/runtime/runtime.h"

namespace horon {
namespace {

TEST(RuntimeOperations, EveryOperationWorksWithAName) {
  on_ranks(3, [&](Runtime& runtime) {
    const int rank = runtime.rank();
    for (int step = 0; step < 4; ++step) {
      std::vector<float> a(6, static_cast<float>(rank));
      std::vector<float> mean(5, static_cast<float>(rank + 1));
      std::vector<float> segment(2);
      std::vector<float> root(4, static_cast<float>(rank));
      std::vector<float> mine(static_cast<size_t>(rank + 1), static_cast<float>(rank));
      std::vector<float> sends = {1, 2, 3};
      std::vector<float> receives(3);
      std::vector<float> g1(3, 1.0F);
      std::vector<double> g2(4, 2.0);
      Gathered gathered;
      std::vector<Work> works;
      works.push_back(runtime.barrier("b"));
      works.push_back(runtime.reduce_scatter("rs", view_of(a), view_of(segment)));
      works.push_back(runtime.all_reduce("mean", view_of(mean), {.op = ReduceOp::kAverage}));
      works.push_back(runtime.broadcast("bc", view_of(root), 2));
      works.push_back(runtime.all_gather("ag", view_of(mine), gathered));
      works.push_back(
          runtime.all_to_all("aa", view_of(sends), {1, 1, 1}, view_of(receives), {1, 1, 1}));
      works.push_back(
          runtime.all_reduce("group", std::vector<BufferView>{view_of(g1), view_of(g2)}));
      std::rotate(works.begin(), works.begin() + rank, works.end());
      for (const Work& work : works) work.wait();
      expect_all(segment, 3.0F);
      expect_all(mean, 2.0F);
      expect_all(root, 2.0F);
      EXPECT_EQ(gathered.counts, (std::vector<uint64_t>{1, 2, 3}));
      expect_all(receives, static_cast<float>(rank + 1));
      expect_all(g1, 3.0F);
      EXPECT_EQ(g2, std::vector<double>(4, 6.0));
      std::vector<float> unnamed(3, 1.0F);
      runtime.all_reduce("", view_of(unnamed)).wait();
      expect_all(unnamed, 3.0F);
    }
  });
}

TEST(RuntimeOperations, AWithdrawnOperationFreesItsName) {
  on_ranks(2, [&](Runtime& runtime) {
    std::vector<float> both(4, 1.0F);
    std::vector<float> wrong(4, 7.0F);
    EXPECT_FALSE(runtime.withdraw("a"));
    if (runtime.rank() == 0) {  // alone: rank 1 has not submitted it
      const Work work = runtime.all_reduce("a", view_of(wrong));
      while (!runtime.withdraw("a")) std::this_thread::yield();
      EXPECT_THROW(work.wait(), Error);
      expect_all(wrong, 7.0F);
    }
    runtime.barrier("b").wait();
    runtime.all_reduce("a", view_of(both)).wait();
    expect_all(both, 2.0F);
    EXPECT_FALSE(runtime.withdraw("a"));
  });
}

TEST(RuntimeOperations, PrescaleAndPostscaleAreApplied) {
  on_ranks(2, [&](Runtime& runtime) {
    for (int step = 0; step < 4; ++step) {
      std::vector<float> a(100, 3.0F);
      std::vector<float> b(50, 4.0F);
      const NamedOptions options{.prescale = 0.5, .postscale = 10.0};
      const Work first = runtime.all_reduce("a", view_of(a), options);
      const Work second = runtime.all_reduce("b", view_of(b), options);
      first.wait();
      second.wait();
      expect_all(a, 30.0F);
      expect_all(b, 40.0F);
    }
    std::vector<int32_t> whole(3, 5);
    runtime.all_reduce("w", view_of(whole), {.postscale = 0.35}).wait();  // 10 * 0.35, cut
    EXPECT_EQ(whole[0], 3);
    std::vector<uint8_t> bytes(3);
    BufferView words = view_of(bytes);
    words.dtype = DType::kBool;
    EXPECT_THROW(runtime.all_reduce("v", words, {.postscale = 0.5}), UsageError);
  });
}

TEST(RuntimeOperations, CodecsTravelInBucketsAndAlone) {
  on_ranks(3, [&](Runtime& runtime) {
    for (const std::string codec : {"none", "fp16", "bf16", "fp16+feedback", "bf16+feedback"}) {
      for (int step = 0; step < 4; ++step) {
        std::vector<float> a(100, 1.5F);
        std::vector<float> b(333, 3.0F);
        const Work first = runtime.all_reduce("a" + codec, view_of(a), {.codec = codec});
        const Work second =
            runtime.all_reduce("b" + codec, view_of(b), {.op = ReduceOp::kAverage, .codec = codec});
        first.wait();
        second.wait();
        expect_all(a, 4.5F);
        expect_all(b, 3.0F);
      }
    }
    std::vector<double> wide(3);
    EXPECT_THROW(runtime.all_reduce("w", view_of(wide), {.codec = "fp16"}), UsageError);
    std::vector<float> data(3);
    EXPECT_THROW(runtime.all_reduce("w", view_of(data), {.codec = "fp15"}), UsageError);
  });
}

TEST(RuntimeOperations, ExactSumsHaveOneHashOnAnyNumberOfRanks) {
  std::vector<float> first;
  for (const int size : {1, 2, 3, 4, 5, 6, 7, 8}) {
    on_ranks(size, [&](Runtime& runtime) {
      constexpr uint64_t kShards = 8;
      std::vector<float> out(1000);
      ExactSum sum = runtime.world().exact_sum(out.size(), DType::kF32, kShards);
      for (uint64_t shard = 0; shard < kShards; ++shard) {
        if (static_cast<int>(shard) % size != runtime.rank()) continue;
        std::vector<float> part(out.size());
        std::mt19937 random(static_cast<unsigned>(shard));
        for (float& value : part) value = std::normal_distribution<float>()(random);
        sum.add(shard, view_of(part));
      }
      runtime.all_reduce("exact", sum, view_of(out), {.reduction = Reduction::kExact}).wait();
      if (runtime.rank() != 0) return;
      if (first.empty()) first = out;
      EXPECT_EQ(first, out) << size;
    });
  }
}

TEST(RuntimeOperations, FastSumsHaveTheSameBitsInEveryRun) {
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 5; ++run) {
    on_ranks(4, [&](Runtime& runtime) {
      std::mt19937 random(static_cast<unsigned>(runtime.rank()));
      std::vector<std::vector<float>> data(30, std::vector<float>(501));
      for (auto& one : data)
        for (float& value : one) value = std::normal_distribution<float>()(random);
      std::vector<size_t> order(data.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(),
                   std::mt19937(static_cast<unsigned>(run * 10 + runtime.rank())));
      std::vector<Work> works;
      for (const size_t i : order)
        works.push_back(runtime.all_reduce(fmt::format("t{}", i), view_of(data[i])));
      for (const Work& work : works) work.wait();
      if (runtime.rank() != 0) return;
      runs.emplace_back();
      for (const auto& one : data) runs.back().insert(runs.back().end(), one.begin(), one.end());
    });
    EXPECT_EQ(runs.front(), runs.back()) << run;
  }
}

TEST(RuntimeSets, SetsMayOverlapAndBeRemovedAndAddedAgain) {
  on_ranks(4, [&](Runtime& runtime) {
    const int rank = runtime.rank();
    for (int round = 0; round < 3; ++round) {
      const int low = runtime.add_process_set({0, 1, 2});
      const int high = runtime.add_process_set({1, 2, 3});
      EXPECT_EQ(runtime.process_set(high), (std::vector<int>{1, 2, 3}));
      std::vector<float> a(10, 1.0F);
      std::vector<float> b(10, 1.0F);
      std::vector<float> all(10, 1.0F);
      std::vector<Work> works;
      works.push_back(runtime.all_reduce("x", view_of(all)));
      if (rank <= 2) works.push_back(runtime.all_reduce("x", view_of(a), {.set = low}));
      if (rank >= 1) works.push_back(runtime.all_reduce("x", view_of(b), {.set = high}));
      for (const Work& work : works) work.wait();
      expect_all(all, 4.0F);
      if (rank <= 2) expect_all(a, 3.0F);
      if (rank >= 1) expect_all(b, 3.0F);
      if (rank == 3) {
        EXPECT_THROW(runtime.all_reduce("x", view_of(a), {.set = low}), UsageError);
      }
      EXPECT_TRUE(runtime.remove_process_set(low));
      EXPECT_TRUE(runtime.remove_process_set(high));
      EXPECT_FALSE(runtime.remove_process_set(0));
    }
    std::vector<float> data(1);
    EXPECT_THROW(runtime.all_reduce("x", view_of(data), {.set = 99}), UsageError);
  });
}

TEST(RuntimeJoin, RankThatJoinsEarlyIsLeftOutOfLaterSteps) {
  on_ranks(3, [&](Runtime& runtime) {
    const int rank = runtime.rank();
    const int steps = 4 + 3 * rank;  // rank 2 is last
    for (int step = 0; step < steps; ++step) {
      std::vector<float> a(20, 1.0F);
      std::vector<float> b(30, 1.0F);
      const Work first = runtime.all_reduce("a", view_of(a));
      const Work second = runtime.all_reduce("b", view_of(b));
      first.wait();
      second.wait();
      const float want = step < 4 ? 3.0F : step < 7 ? 2.0F : 1.0F;
      expect_all(a, want);
      expect_all(b, want);
    }
    EXPECT_EQ(runtime.join(), 2);
    std::vector<float> after(5, 1.0F);
    runtime.run_all_reduce("a", view_of(after));
    expect_all(after, 3.0F);
  });
}

TEST(RuntimeThreads, ManyThreadsMaySubmitAtOnce) {
  on_ranks(2, [&](Runtime& runtime) {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&runtime, t] {
        for (int step = 0; step < 30; ++step) {
          std::vector<float> data(static_cast<size_t>(50 + t), 1.0F);
          runtime.run_all_reduce(fmt::format("thread{}", t), view_of(data));
          expect_all(data, 2.0F);
        }
      });
    }
  });
}

TEST(RuntimePriority, UrgentOperationsUseTheirOwnLane) {
  on_ranks(2, [&](Runtime& runtime) {
    for (int step = 0; step < 5; ++step) {
      std::vector<float> big(1U << 20, 1.0F);
      std::vector<float> small(10, 1.0F);
      const Work bulk = runtime.all_reduce("big", view_of(big));
      const Work urgent = runtime.all_reduce("small", view_of(small), {.priority = 1});
      urgent.wait();
      bulk.wait();
      expect_all(small, 2.0F);
      expect_all(big, 2.0F);
    }
  });
}

TEST(RuntimePriority, OvertakesALargeTransferBetweenChunks) {
  RuntimeOptions options;
  options.chunk_bytes = 64U << 10;
  std::atomic<uint64_t> made_way{0};
  on_ranks(
      2,
      [&](Runtime& runtime) {
        std::vector<float> big(16U << 20);
        std::vector<float> small(10);
        int first = 0;
        bool goes_on = true;
        // Whether the urgent one comes between two chunks is chance: until it did.
        for (int step = 0; goes_on; ++step) {
          std::fill(big.begin(), big.end(), 1.0F);
          std::fill(small.begin(), small.end(), 1.0F);
          const Work bulk = runtime.all_reduce("big", view_of(big));
          runtime.all_reduce("small", view_of(small), {.priority = 1}).wait();
          first += bulk.done() ? 0 : 1;
          bulk.wait();
          expect_all(small, 2.0F);
          expect_all(big, 2.0F);
          std::array<double, 1> found = {static_cast<double>(runtime.counters().overtaken)};
          runtime.world().all_reduce(view_of(found));
          goes_on = step < 5 || (found[0] == 0 && step < 200);
        }
        EXPECT_GT(first, 0);  // if it had to wait, never
        made_way += runtime.counters().overtaken;
      },
      options);
  EXPECT_GT(made_way, 0U);
}

TEST(RuntimePriority, AnUrgentOperationThatCannotRunHoldsNothingUp) {
  RuntimeOptions options;
  options.chunk_bytes = 4096;
  on_ranks(
      2,
      [&](Runtime& runtime) {
        std::vector<float> big(1U << 20, 1.0F);
        std::vector<float> small(10, 1.0F);
        Work urgent;
        // Rank 1 wants the large one before it comes to the urgent one.
        if (runtime.rank() == 0)
          urgent = runtime.all_reduce("small", view_of(small), {.priority = 1});
        runtime.all_reduce("big", view_of(big)).wait();
        if (runtime.rank() == 1)
          urgent = runtime.all_reduce("small", view_of(small), {.priority = 1});
        urgent.wait();
        expect_all(big, 2.0F);
        expect_all(small, 2.0F);
      },
      options);
}

// What must be there before the input is read, and who is told of the result: in a bucket, alone,
// without a name.
TEST(RuntimeOperations, WaitForTheirInputAndTellOfTheirResult) {
  on_ranks(2, [&](Runtime& runtime) {
    std::vector<float> a(10);
    std::vector<float> b(10);
    std::vector<float> c(10);
    for (int step = 0; step < 5; ++step) {
      std::vector<Work> works;
      std::atomic<int> told = 0;
      for (auto* data : {&a, &b, &c}) {
        NamedOptions options;
        options.ready = [data] { std::fill(data->begin(), data->end(), 1.0F); };
        options.done = [data, &told] { told += data->front() == 2.0F ? 1 : 100; };
        const std::string name = data == &a ? "a" : data == &b ? "b" : "";
        works.push_back(runtime.all_reduce(name, view_of(*data), options));
      }
      for (const Work& work : works) work.wait();
      EXPECT_EQ(told, 3);
    }
  });
}

TEST(RuntimeOperations, CompletionIsReportedWithoutAWait) {
  on_ranks(2, [&](Runtime& runtime) {
    std::vector<float> a(10, 1.0F);
    std::vector<float> b(10, 1.0F);
    for (int step = 0; step < 4; ++step) {  // until both are in one bucket
      const Work first = runtime.all_reduce("a", view_of(a));
      runtime.all_reduce("b", view_of(b)).wait();
      first.wait();
    }
    std::promise<void> over;
    runtime.all_reduce("a", view_of(a)).on_done([&](const std::exception_ptr& error) {
      EXPECT_EQ(error, nullptr);
      over.set_value();
    });
    over.get_future().wait();
    const Work polled = runtime.all_reduce("b", view_of(b));
    for (polled.expect(); !polled.done();) std::this_thread::yield();
    EXPECT_EQ(runtime.counters().operations, 10U);
    runtime.barrier("end").wait();
  });
}

// Whoever waits for a short time is back then, and has not begun what takes longer.
TEST(RuntimeOperations, WaitsKeepTheirLimits) {
  on_ranks(2, [&](Runtime& runtime) {
    std::vector<float> data(10, 1.0F);
    for (int round = 0; round < 20; ++round) {
      Work work;
      if (runtime.rank() == 0) {
        work = runtime.all_reduce("x", view_of(data));
        EXPECT_FALSE(work.wait(Deadline::after(Milliseconds(3))));
      }
      runtime.barrier("").wait();  // rank 1 comes only now
      if (runtime.rank() == 1) work = runtime.all_reduce("x", view_of(data));
      while (!work.wait(Deadline::after(Milliseconds(1000)))) {
      }
    }
  });
}

TEST(RuntimeOperations, SeparateOutputLeavesTheInputUnchanged) {
  on_ranks(2, [&](Runtime& runtime) {
    const auto rank = static_cast<float>(runtime.rank());
    for (int step = 0; step < 5; ++step) {
      std::vector<float> in(5, rank);
      std::vector<float> out(5, -1.0F);
      std::vector<float> more(7, 1.0F);
      std::vector<float> sum(7, -1.0F);
      const NamedOptions scaled{.prescale = 2.0};
      const Work a = runtime.all_reduce("a", view_of(in), view_of(out));
      const Work b = runtime.all_reduce("b", view_of(more), view_of(sum));
      for (const Work& work : {a, b}) work.wait();
      expect_all(out, 1.0F);
      expect_all(sum, 2.0F);
      runtime.all_reduce("", view_of(in), view_of(out), scaled).wait();
      expect_all(out, 2.0F);
      runtime.broadcast("c", view_of(in), view_of(out), 1).wait();
      expect_all(out, 1.0F);
      expect_all(in, rank);
      expect_all(more, 1.0F);
    }
    std::vector<float> wrong(4);
    EXPECT_THROW(runtime.all_reduce("a", view_of(wrong), view_of(wrong).slice(0, 3)), UsageError);
  });
}

TEST(RuntimeOperations, AllToAllAllocatesForUnknownSizes) {
  on_ranks(3, [&](Runtime& runtime) {
    const auto rank = static_cast<uint64_t>(runtime.rank());
    for (const char* name : {"x", "x", ""}) {
      const std::vector<uint64_t> sends = {rank, 2 * rank, 0};
      std::vector<float> in(3 * rank, static_cast<float>(rank));
      Gathered got;
      if (rank == 2) {  // one that knows what it gets
        std::vector<float> none;
        runtime.all_to_all(name, view_of(in), sends, view_of(none), {0, 0, 0}).wait();
        continue;
      }
      runtime.all_to_all(name, view_of(in), sends, got).wait();
      EXPECT_EQ(got.counts, (std::vector<uint64_t>{0, rank + 1, 2 * rank + 2}));
      const auto values = got.data.as<float>();
      ASSERT_EQ(values.size(), 3 * rank + 3);
      EXPECT_EQ(values.front(), 1.0F);
      EXPECT_EQ(values.back(), 2.0F);
    }
  });
}

TEST(Gates, WaitForAnUrgentOperationOnceAndAtMostBriefly) {
  Gate gate;
  gate.make_way();
  EXPECT_EQ(gate.times_made_way(), 0U);
  gate.begin_urgent();
  const Stopwatch watch;
  for (int i = 0; i < 100; ++i) gate.make_way();  // loses patience once
  EXPECT_GE(watch.seconds(), 0.019);
  EXPECT_LT(watch.seconds(), 1.0);
  EXPECT_EQ(gate.times_made_way(), 1U);
  gate.end_urgent();
  gate.begin_urgent();
  std::jthread other([&] { gate.end_urgent(); });
  gate.make_way();
  other.join();
  gate.make_way();
  EXPECT_LE(gate.times_made_way(), 2U);
}

}  // namespace
}  // namespace horon
