#include "horon/runtime/runtime.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "horon/base/error.h"
#include "horon/comm/bootstrap.h"
#include "horon/runtime/detail_on_ranks.h"

namespace horon {
namespace {

// Other interleavings in every run; what failed can be run again.
unsigned test_seed() {
  static const unsigned seed = [] {
    const char* given = std::getenv("HORON_TEST_SEED");
    return given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device()();
  }();
  return seed;
}

TEST(RuntimeOrder, AnyOrderAndDelayOnAnyNumberOfRanks) {
  SCOPED_TRACE(fmt::format("HORON_TEST_SEED={}", test_seed()));
  RecordProperty("seed", std::to_string(test_seed()));
  for (const int size : {1, 2, 3, 5, 8}) {
    constexpr int kCount = 20;
    on_ranks(size, [&](Runtime& runtime) {
      std::mt19937 random(test_seed() + static_cast<unsigned>(runtime.rank() * 1000 + size));
      for (int step = 0; step < 15; ++step) {
        Tensors tensors(kCount, runtime.rank(), step);
        std::vector<int> order(kCount);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        std::vector<Work> works;
        for (const int i : order) {
          if (random() % 7 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
          works.push_back(runtime.all_reduce(fmt::format("t{}", i), view_of(tensors.data[i])));
        }
        for (const Work& work : works) work.wait();
        for (int i = 0; i < kCount; ++i) expect_all(tensors.data[i], Tensors::sum(i, size, step));
      }
    });
  }
}

TEST(RuntimeOrder, AStepThatRepeatsNeedsNoControlMessages) {
  on_ranks(4, [&](Runtime& runtime) {
    std::mt19937 random(static_cast<unsigned>(runtime.rank()));
    RuntimeCounters learned;
    for (int step = 0; step < 30; ++step) {
      Tensors tensors(50, runtime.rank(), step);
      std::vector<int> order(50);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<Work> works;
      for (const int i : order)
        works.push_back(runtime.all_reduce(fmt::format("t{}", i), view_of(tensors.data[i])));
      for (const Work& work : works) work.wait();
      if (step == 3) learned = runtime.counters();
    }
    const RuntimeCounters counters = runtime.counters();
    EXPECT_GT(learned.control_messages, 0U);
    EXPECT_EQ(counters.control_messages, learned.control_messages);
    EXPECT_EQ(counters.operations, 30U * 50);
    EXPECT_EQ(counters.collectives - learned.collectives, 26U);  // one bucket a step
  });
}

TEST(RuntimeBuckets, DeclaredTensorsAreReducedWithoutACopy) {
  on_ranks(3, [&](Runtime& runtime) {
    std::vector<TensorSpec> specs(40);
    for (size_t i = 0; i < specs.size(); ++i) {
      specs[i].name = fmt::format("layer{}", i);
      specs[i].count = 1 + 97 * i;
    }
    const BucketMemory memory = runtime.allocate_buckets(specs);
    for (int step = 0; step < 5; ++step) {
      std::vector<Work> works;
      for (size_t i = specs.size(); i-- > 0;) {
        for (float& value :
             std::span(static_cast<float*>(memory.views[i].data), memory.views[i].count))
          value = Tensors::value(static_cast<int>(i), runtime.rank(), step);
        works.push_back(runtime.all_reduce(specs[i].name, memory.views[i]));
      }
      for (const Work& work : works) work.wait();
      for (size_t i = 0; i < specs.size(); ++i) {
        for (const float value :
             std::span(static_cast<float*>(memory.views[i].data), memory.views[i].count))
          ASSERT_EQ(value, Tensors::sum(static_cast<int>(i), 3, step));
      }
    }
    EXPECT_EQ(runtime.counters().bytes_copied, 0U);
    EXPECT_EQ(runtime.counters().control_messages, 0U);
    // What is learned later leaves the declared buckets where they are.
    for (int step = 0; step < 5; ++step) {
      std::vector<float> loss(1, 1.0F);
      std::vector<Work> works;
      for (size_t i = specs.size(); i-- > 0;)
        works.push_back(runtime.all_reduce(specs[i].name, memory.views[i]));
      for (const Work& work : works) work.wait();
      runtime.run_all_reduce("loss", view_of(loss));
    }
    EXPECT_EQ(runtime.counters().bytes_copied, 0U);
  });
  EXPECT_THROW(on_ranks(2,
                        [](Runtime& runtime) {
                          TensorSpec spec;
                          spec.name = "x";
                          spec.count = runtime.rank() == 0 ? 5 : 6;
                          runtime.allocate_buckets({spec});
                        }),
               UsageError);
}

TEST(RuntimeBuckets, WhatLiesBetweenTensorsIsNotTouched) {
  on_ranks(2, [&](Runtime& runtime) {
    // As far apart as in a bucket, with something of ours between them.
    std::vector<float> block(32, 7.0F);
    const BufferView a{block.data(), 5, DType::kF32, {}};
    const BufferView b{block.data() + 16, 6, DType::kF32, {}};
    for (int step = 0; step < 4; ++step) {
      std::fill(block.begin(), block.end(), 7.0F);
      const Work first = runtime.all_reduce("a", a);
      const Work second = runtime.all_reduce("b", b);
      first.wait();
      second.wait();
      for (size_t i = 0; i < block.size(); ++i)
        ASSERT_EQ(block[i], i < 5 || (i >= 16 && i < 22) ? 14.0F : 7.0F) << i;
    }
  });
}

TEST(RuntimeSteps, TensorsMayBeMissingInSomeSteps) {
  on_ranks(3, [&](Runtime& runtime) {
    for (int step = 0; step < 60; ++step) {
      const int count = 10 + step % 4;  // the last ones do not come in every step
      Tensors tensors(count, runtime.rank(), step);
      std::vector<Work> works;
      for (int i = 0; i < count; ++i) {
        if (i == 5 && step % 5 == 0) continue;
        works.push_back(runtime.all_reduce(fmt::format("t{}", i), view_of(tensors.data[i])));
      }
      for (const Work& work : works) work.wait();
      for (int i = 0; i < count; ++i) {
        if (i != 5 || step % 5 != 0) expect_all(tensors.data[i], Tensors::sum(i, 3, step));
      }
    }
  });
}

TEST(RuntimeSteps, AShapeMayChangeFromStepToStep) {
  on_ranks(2, [&](Runtime& runtime) {
    for (int step = 0; step < 12; ++step) {
      std::vector<float> a(static_cast<size_t>(10 + step / 3), 1.0F);
      std::vector<float> b(20, 2.0F);
      const Work first = runtime.all_reduce("a", view_of(a));
      const Work second = runtime.all_reduce("b", view_of(b));
      second.wait();
      first.wait();
      expect_all(a, 2.0F);
      expect_all(b, 4.0F);
    }
  });
}

TEST(RuntimeErrors, EveryMismatchIsTheSameOnAllRanksAndTheRuntimeContinues) {
  std::vector<std::string> texts(3);
  on_ranks(3, [&](Runtime& runtime) {
    std::vector<float> data(runtime.rank() == 1 ? 5 : 6, 1.0F);
    try {
      runtime.all_reduce("x", view_of(data)).wait();
      ADD_FAILURE() << "different sizes were summed";
    } catch (const UsageError& error) {
      texts[runtime.rank()] = error.what();
    }
    std::vector<float> fine(4, 1.0F);
    runtime.run_all_reduce("x", view_of(fine));
    expect_all(fine, 3.0F);
    // A type that changes on one rank only, in a tensor that is planned.
    std::vector<int32_t> other(4, 1);
    try {
      (runtime.rank() == 2 ? runtime.all_reduce("x", view_of(other))
                           : runtime.all_reduce("x", view_of(fine)))
          .wait();
      ADD_FAILURE() << "different types were summed";
    } catch (const UsageError&) {
    }
    std::vector<float> again(4, 1.0F);
    runtime.run_all_reduce("x", view_of(again));
    expect_all(again, 3.0F);
  });
  EXPECT_NE(texts[0].find("rank 1: all_reduce sum f32[5] 'x'"), std::string::npos) << texts[0];
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
}

TEST(RuntimeErrors, UnnamedGroupsThatDifferAreDescribed) {
  std::array<std::string, 2> texts;
  on_ranks(2, [&](Runtime& runtime) {
    std::vector<float> a(4, 1.0F);
    std::vector<float> b(runtime.rank() == 0 ? 5 : 6, 1.0F);
    try {
      runtime.all_reduce("", {view_of(a), view_of(b)}).wait();
    } catch (const UsageError& error) {
      texts[runtime.rank()] = error.what();
    }
    // A priority means nothing without a name.
    runtime.all_reduce("", {view_of(a)}, {.priority = runtime.rank()}).wait();
    expect_all(a, 2.0F);
  });
  EXPECT_NE(texts[0].find("rank 0: all_reduce sum f32[5]; rank 1: all_reduce sum f32[6]"),
            std::string::npos)
      << texts[0];
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(RuntimeErrors, ANameIsInFlightOnce) {
  std::atomic<int> tried{0};
  on_ranks(2, [&](Runtime& runtime) {
    for (int step = 0; step < 3; ++step) {  // unknown at first, later taken by the lane at once
      std::vector<float> a(3, 1.0F);
      std::vector<float> b(3, 1.0F);
      if (runtime.rank() == 0) {
        const Work work = runtime.all_reduce("x", view_of(a));
        if (step == 2) std::this_thread::sleep_for(Milliseconds(20));  // until it runs, mostly
        EXPECT_THROW(runtime.all_reduce("x", view_of(b)), UsageError);
        tried = step + 1;
        tried.notify_all();
        work.wait();
      } else {
        tried.wait(step);
        runtime.run_all_reduce("x", view_of(a));
      }
      expect_all(a, 2.0F);
      expect_all(b, 1.0F);
    }
  });
}

TEST(RuntimeErrors, ARankThatNeverSubmitsIsATimeoutThatNamesIt) {
  RuntimeOptions options;
  options.timeout = Milliseconds(300);
  try {
    on_ranks(
        2,
        [&](Runtime& runtime) {
          std::vector<float> data(3, 1.0F);
          if (runtime.rank() == 0) runtime.run_all_reduce("x", view_of(data));
        },
        options);
    FAIL() << "summed with nobody";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.ranks(), std::vector<int>{1});
  }
}

TEST(RuntimeErrors, BarriersWaitLongerThanTheLimit) {
  RuntimeOptions options;
  options.timeout = Milliseconds(100);
  on_ranks(
      2,
      [&](Runtime& runtime) {
        for (const char* name : {"evaluated", "evaluated", ""}) {
          if (runtime.rank() == 1) std::this_thread::sleep_for(Milliseconds(300));  // its work
          runtime.barrier(name).wait();
        }
      },
      options);
}

// Rank 0 closes its runtime under an operation that waits for rank 1 (its stall monitor has said
// so). What rank 1 learns of it when it comes.
std::string close_under(const std::string& name) {
  auto world = make_local_world(2);
  std::vector<float> data(3, 1.0F);
  std::promise<void> waits;
  RuntimeOptions options;  // the operation would wait for ten minutes
  options.store = make_memory_store();
  options.stall.ask_after = Milliseconds(1);
  options.stall.warn_after = Milliseconds(1);
  options.warn = [&, said = false](const std::string&) mutable {
    if (!std::exchange(said, true)) waits.set_value();
  };
  auto closing = std::make_unique<Runtime>(std::move(world[0]), options);
  Runtime staying(std::move(world[1]), options);
  Work work = closing->all_reduce(name, view_of(data));
  waits.get_future().wait();
  const Stopwatch watch;
  closing.reset();
  EXPECT_THROW(work.wait(), Error);
  EXPECT_LT(watch.seconds(), 30.0);
  try {
    staying.run_all_reduce(name, view_of(data));
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(RuntimeEnd, WorkInFlightFailsWithoutAHang) {
  for (const char* name : {"never", ""}) {
    const std::string learnt = close_under(name);
    EXPECT_NE(learnt.find("rank 0 closed the communicator"), std::string::npos) << learnt;
  }
}

}  // namespace
}  // namespace horon
