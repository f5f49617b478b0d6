// What the runtime guarantees for operations other than plain named ones: unnamed ones, those on
// world(), urgent ones, encoded ones, and sets on which ranks disagree.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/codec/detail_top_k.h"
#include "horon/device/half.h"
#include "horon/runtime/detail_on_ranks.h"

namespace horon {
namespace {

std::vector<TensorSpec> declared(const std::vector<uint64_t>& counts, int priority = 0) {
  std::vector<TensorSpec> specs(counts.size());
  for (size_t i = 0; i < counts.size(); ++i) {
    specs[i].name = fmt::format("t{}", i);
    specs[i].count = counts[i];
    specs[i].priority = priority;
  }
  return specs;
}

std::span<float> numbers(const BufferView& view) {
  return {static_cast<float*>(view.data), view.count};
}

// --- join

TEST(Join, CoversUrgentUnnamedAndWorldOperations) {
  for (const int size : {2, 3, 5}) {
    on_ranks(size, [&](Runtime& runtime) {
      const int rank = runtime.rank();
      for (int step = 0; step < 3 * (rank + 1); ++step) {
        std::vector<std::vector<float>> data(4, std::vector<float>(20, 1.0F));
        const Work named = runtime.all_reduce("named", view_of(data[0]));
        const Work urgent = runtime.all_reduce("urgent", view_of(data[1]), {.priority = 1});
        const Work unnamed = runtime.all_reduce("", view_of(data[2]));
        runtime.world().all_reduce(view_of(data[3]), {.name = "world"});
        for (const Work& work : {named, urgent, unnamed}) work.wait();
        for (const auto& one : data) expect_all(one, static_cast<float>(size - step / 3));
      }
      EXPECT_EQ(runtime.join(), size - 1);
    });
  }
}

// What those that were left did alone, the others have not learned.
TEST(Join, EverybodyAgreesAgainAfterwards) {
  on_ranks(3, [&](Runtime& runtime) {
    const BucketMemory memory = runtime.allocate_buckets(declared({100, 200, 300}));
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 2 + 4 * runtime.rank(); ++step) {
        std::vector<float> extra(7, 1.0F);
        std::vector<Work> works;
        for (int i = 0; i < 3; ++i) {
          if (i == 1 && step > 2) continue;  // ranks that are alone leave a declared one out
          std::ranges::fill(numbers(memory.views[i]), 1.0F);
          works.push_back(runtime.all_reduce(fmt::format("t{}", i), memory.views[i]));
        }
        works.push_back(runtime.all_reduce(fmt::format("extra{}", step), view_of(extra)));
        for (const Work& work : works) work.wait();
        const float want = step < 2 ? 3.0F : step < 6 ? 2.0F : 1.0F;
        EXPECT_EQ(numbers(memory.views[2])[299], want) << step;
      }
      EXPECT_EQ(runtime.join(), 2);
    }
    EXPECT_EQ(runtime.counters().bytes_copied, 0U);
  });
}

// A name that some called urgent for the first time while others had joined, or no longer.
TEST(Join, UrgentNamesAreAgreedOnAgainAfterwards) {
  RuntimeOptions options;
  options.timeout = std::chrono::seconds(20);
  on_ranks(
      2,
      [&](Runtime& runtime) {
        const auto sum = [&](const std::string& name, int priority, float want) {
          std::vector<float> data(3, 1.0F);
          runtime.run_all_reduce(name, view_of(data), {.priority = priority});
          expect_all(data, want);
        };
        for (int i = 0; i < 3; ++i) sum("known", 1, 2.0F);
        for (int i = 0; i < 3 && runtime.rank() == 1; ++i) sum("fresh", 1, 1.0F);
        for (int i = 0; i < 3 && runtime.rank() == 1; ++i) sum("known", 0, 1.0F);
        runtime.join();
        for (int i = 0; i < 3; ++i) sum("fresh", 1, 2.0F);
        for (int i = 0; i < 3; ++i) sum("known", 1, 2.0F);
      },
      options);
}

TEST(Join, WithWorkInFlightIsRefused) {
  std::atomic<bool> tried{false};
  on_ranks(2, [&](Runtime& runtime) {
    std::vector<float> data(3, 1.0F);
    if (runtime.rank() == 1) tried.wait(false);  // until then it cannot end
    const Work work = runtime.all_reduce("x", view_of(data), {.priority = 1});
    if (runtime.rank() == 0) {
      EXPECT_THROW(runtime.join(), UsageError);
      tried = true;
      tried.notify_all();
    }
    work.wait();
  });
}

// --- operations outside the lanes

struct Lines {
  std::mutex mutex;
  std::vector<std::string> all;
  RuntimeOptions options() {
    RuntimeOptions options;
    options.store = make_memory_store();
    options.stall.ask_after = Milliseconds(50);
    options.stall.warn_after = Milliseconds(100);
    options.warn = [this](const std::string& line) {
      const std::lock_guard lock(mutex);
      all.push_back(line);
    };
    return options;
  }
  bool has(const std::string& text) {
    const std::lock_guard lock(mutex);
    return std::ranges::any_of(all, [&](const auto& line) { return line.find(text) != line.npos; });
  }
};

TEST(Unnamed, WaitsAreExplained) {
  Lines lines;
  on_ranks(
      2,
      [&](Runtime& runtime) {
        std::vector<float> data(3, 1.0F);
        runtime.world().all_reduce(view_of(data), {.name = "evaluation"});
        while (runtime.rank() == 1 && !lines.has("rank 1 has not submitted it"))
          std::this_thread::yield();
        runtime.run_all_reduce("", view_of(data));
        while (runtime.rank() == 1 && !lines.has("'evaluation #2'")) std::this_thread::yield();
        runtime.world().all_reduce(view_of(data), {.name = "evaluation"});
      },
      lines.options());
  EXPECT_TRUE(lines.has("waiting for 'all_reduce #1'")) << lines.all.front();
  EXPECT_TRUE(lines.has("rank 1 last finished 'evaluation #1'"));
}

// Rank 1 has no runtime that could answer.
TEST(Unnamed, ASilentRankEndsTheOperation) {
  for (const bool on_world : {false, true}) {
    Lines lines;
    auto world = make_local_world(2);
    RuntimeOptions options = lines.options();
    options.stall.silence = Milliseconds(200);
    Runtime runtime(std::move(world[0]), options);
    std::vector<float> data(3, 1.0F);
    const Stopwatch watch;
    try {
      if (on_world) {
        runtime.world().barrier({.name = "session", .timeout = kNoLimit});
      } else {
        runtime.barrier("").wait();
      }
      FAIL() << "met with nobody";
    } catch (const TimeoutError& error) {
      EXPECT_EQ(error.ranks(), std::vector<int>{1});
      const std::string text = error.what();
      EXPECT_NE(text.find("rank 1 does not answer"), std::string::npos) << text;
      EXPECT_EQ(text.find("365"), std::string::npos) << text;
      EXPECT_EQ(text.find("no progress"), std::string::npos) << text;
    }
    EXPECT_LT(watch.seconds(), 10.0);
  }
}

TEST(Unnamed, AreTracedAndCounted) {
  const TempFolder folder;
  on_ranks(2, [&](Runtime& runtime) {
    runtime.start_timeline(folder.path() + "/t");
    std::vector<float> data(10, 1.0F);
    const RuntimeCounters before = runtime.counters();
    for (int i = 0; i < 3; ++i) runtime.run_all_reduce("", view_of(data));
    runtime.world().all_reduce(view_of(data), {.name = "evaluation"});
    EXPECT_EQ(runtime.counters().operations - before.operations, 4U);
    EXPECT_EQ(runtime.counters().bytes - before.bytes, 160U);
    runtime.stop_timeline();
    EXPECT_NE(runtime.describe_last().find("evaluation"), std::string::npos);
  });
  const std::string text = read_small_file(folder.path() + "/t.0");
  EXPECT_NE(text.find("\"all_reduce #3\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"evaluation #"), std::string::npos) << text;
}

TEST(Unnamed, AreScaledAndEncoded) {
  on_ranks(2, [&](Runtime& runtime) {
    std::vector<float> data(100, 1.0F / 3.0F);
    const float rounded = bf16_to_float(float_to_bf16(1.0F / 3.0F));
    runtime.run_all_reduce("", view_of(data), {.codec = "bf16"});
    expect_all(data, 2 * rounded);
    std::vector<float> scaled(5, 1.0F);
    runtime.all_reduce("", view_of(scaled), {.prescale = 0.5, .postscale = 10.0}).wait();
    expect_all(scaled, 10.0F);
    EXPECT_THROW(runtime.all_reduce("", view_of(data), {.codec = "bf16+feedback"}), UsageError);
    // Other factors on another rank are the usual mismatch.
    const NamedOptions other{.prescale = runtime.rank() == 0 ? 0.5 : 0.25};
    EXPECT_THROW(runtime.all_reduce("", view_of(scaled), other).wait(), UsageError);
    std::vector<float> fine(5, 1.0F);
    runtime.run_all_reduce("", view_of(fine));
    expect_all(fine, 2.0F);
  });
}

TEST(Unnamed, InputsAreNotWritten) {
  on_ranks(2, [&](Runtime& runtime) {
    for (const char* name : {"", "named"}) {
      std::vector<float> in = {1, 2, 3, 4};
      std::vector<float> out(2);
      runtime.reduce_scatter(name, view_of(in), view_of(out), {}, {.prescale = 0.5}).wait();
      EXPECT_EQ(in, (std::vector<float>{1, 2, 3, 4}));
      EXPECT_EQ(out[0], runtime.rank() == 0 ? 1.0F : 3.0F);
      Gathered gathered;
      runtime.all_gather(name, view_of(in), gathered, {.prescale = 2.0, .postscale = 10.0}).wait();
      EXPECT_EQ(in, (std::vector<float>{1, 2, 3, 4}));
      EXPECT_EQ(gathered.data.as<float>()[7], 80.0F);
    }
  });
}

TEST(Unnamed, WorkInFlightEndsWhenTheRuntimeCloses) {
  auto world = make_local_world(2);
  Work work;
  Work behind;
  const Stopwatch watch;
  {
    Runtime lonely(std::move(world[0]));
    work = lonely.barrier("");  // without a limit
    behind = lonely.barrier("");
  }
  EXPECT_THROW(work.wait(), Error);
  EXPECT_THROW(behind.wait(), Error);
  EXPECT_LT(watch.seconds(), 30.0);
}

// --- priorities

TEST(Priority, AMismatchIsTheUsualErrorAndTheRuntimeContinues) {
  std::vector<std::set<std::string>> texts(2);
  on_ranks(2, [&](Runtime& runtime) {
    const int rank = runtime.rank();
    std::vector<float> data(4, 1.0F);
    const auto expect_mismatch = [&](const std::string& name) {
      try {
        runtime.all_reduce(name, view_of(data), {.priority = rank}).wait();
        ADD_FAILURE() << name;
      } catch (const UsageError& error) {
        texts[static_cast<size_t>(rank)].insert(error.what());
        EXPECT_EQ(error.exit_code(), ExitCode::kMismatch);
      }
    };
    expect_mismatch("fresh");
    for (int i = 0; i < 3; ++i) runtime.run_all_reduce("urgent", view_of(data), {.priority = 3});
    expect_mismatch("urgent");
    for (int i = 0; i < 3; ++i) runtime.run_all_reduce("bulk", view_of(data));
    expect_mismatch("bulk");
    // All may change their minds.
    for (int i = 0; i < 6; ++i) {
      std::vector<float> ones(4, 1.0F);
      runtime.run_all_reduce("urgent", view_of(ones), {.priority = i / 3});
      expect_all(ones, 2.0F);
    }
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0].size(), 3U);
}

TEST(Priority, DeclaredTensorsAreNotCopied) {
  on_ranks(2, [&](Runtime& runtime) {
    std::vector<TensorSpec> specs = declared({1000, 2000, 3000, 4000});
    specs[1].priority = specs[2].priority = 1;
    const BucketMemory memory = runtime.allocate_buckets(specs);
    for (int step = 0; step < 5; ++step) {
      std::vector<Work> works;
      for (size_t i = 0; i < specs.size(); ++i) {
        std::ranges::fill(numbers(memory.views[i]), static_cast<float>(i));
        works.push_back(
            runtime.all_reduce(specs[i].name, memory.views[i], {.priority = specs[i].priority}));
      }
      for (const Work& work : works) work.wait();
      for (size_t i = 0; i < specs.size(); ++i)
        EXPECT_EQ(numbers(memory.views[i])[specs[i].count - 1], static_cast<float>(2 * i));
    }
    EXPECT_EQ(runtime.counters().bytes_copied, 0U);
    EXPECT_EQ(runtime.counters().control_messages, 0U);
  });
  EXPECT_THROW(
      on_ranks(2,
               [](Runtime& runtime) { runtime.allocate_buckets(declared({10}, runtime.rank())); }),
      UsageError);
}

// --- buckets

TEST(Buckets, AStepWithoutADeclaredTensorCostsNoCopies) {
  on_ranks(2, [&](Runtime& runtime) {
    const std::vector<uint64_t> counts = {1000, 2000, 3000, 4000, 5000};
    const BucketMemory memory = runtime.allocate_buckets(declared(counts));
    uint64_t control = 0;
    for (int step = 0; step < 40; ++step) {
      std::vector<Work> works;
      for (size_t i = 0; i < counts.size(); ++i) {
        std::ranges::fill(numbers(memory.views[i]), static_cast<float>(i + 1));
        if (i == 2 && (step == 3 || (step > 20 && step < 30))) continue;
        works.push_back(runtime.all_reduce(fmt::format("t{}", i), memory.views[i]));
      }
      for (const Work& work : works) work.wait();
      for (size_t i = 0; i < counts.size(); ++i) {
        const bool left_out = i == 2 && (step == 3 || (step > 20 && step < 30));
        const auto want = static_cast<float>((i + 1) * (left_out ? 1 : 2));
        EXPECT_EQ(numbers(memory.views[i])[counts[i] - 1], want) << step << " " << i;
      }
      if (step == 10 || step == 23) control = runtime.counters().control_messages;
      if (step == 20 || step == 29) {  // by plan again, with the tensor and without
        EXPECT_EQ(runtime.counters().control_messages, control) << step;
      }
    }
    EXPECT_EQ(runtime.counters().bytes_copied, 0U);
  });
}

// --- codecs

// Passes everything through and notes what it was given.
class Noting final : public Codec {
 public:
  struct Notes {
    std::mutex mutex;
    std::map<std::string, std::set<size_t>> sizes;
  };
  explicit Noting(Notes& notes) : notes_(notes) {}
  std::string name() const override { return "noting"; }
  bool is_dense() const override { return true; }
  DType wire_dtype() const override { return DType::kF32; }
  size_t encode(std::span<const float> in, Segments segments, std::span<std::byte> out) override {
    {
      const std::lock_guard lock(notes_.mutex);
      for (const Segment& segment : segments) notes_.sizes[segment.tensor].insert(segment.count);
    }
    std::ranges::copy(std::as_bytes(in), out.begin());
    return in.size_bytes();
  }
  void decode(std::span<const std::byte> wire, Segments, std::span<float> out) const override {
    std::ranges::copy(wire, std::as_writable_bytes(out).begin());
  }

 private:
  Notes& notes_;
};

TEST(Encoded, CodecStateBelongsToATensorNotToItsBucket) {
  Noting::Notes notes;
  RuntimeOptions options;
  options.codecs.add("noting", [&] { return std::make_unique<Noting>(notes); });
  on_ranks(
      2,
      [&](Runtime& runtime) {
        for (int step = 0; step < 20; ++step) {
          Tensors tensors(6 + step / 5, runtime.rank(), step);  // buckets change as more come
          std::vector<Work> works;
          for (size_t i = 0; i < tensors.data.size(); ++i)
            works.push_back(runtime.all_reduce(fmt::format("t{}", i), view_of(tensors.data[i]),
                                               {.codec = "noting"}));
          for (const Work& work : works) work.wait();
          for (size_t i = 0; i < tensors.data.size(); ++i)
            expect_all(tensors.data[i], Tensors::sum(static_cast<int>(i), 2, step));
        }
      },
      options);
  EXPECT_EQ(notes.sizes.size(), 9U);
  for (const auto& [name, sizes] : notes.sizes) {
    EXPECT_EQ(name.find(' '), std::string::npos) << name;
    EXPECT_EQ(sizes.size(), 1U) << name;
  }
}

TEST(Encoded, SparseOnesTravelInBucketsAndAlone) {
  RuntimeOptions options;
  add_test_codecs(options.codecs);
  for (const int size : {1, 2, 3}) {
    on_ranks(
        size,
        [&](Runtime& runtime) {
          for (int step = 0; step < 5; ++step) {
            std::vector<std::vector<float>> data;
            std::vector<Work> works;
            for (size_t i = 0; i < 5; ++i) {
              data.emplace_back(20 + 4 * i, 1.0F);
              for (size_t k = 0; k < 5 + i; ++k)  // the quarter that is kept: another on each rank
                data[i][(k * 3 + static_cast<size_t>(runtime.rank())) % data[i].size()] = 8.0F;
            }
            for (size_t i = 0; i < data.size(); ++i)
              works.push_back(
                  runtime.all_reduce(fmt::format("t{}", i), view_of(data[i]),
                                     {.op = ReduceOp::kAverage, .codec = "top_quarter"}));
            for (const Work& work : works) work.wait();
            for (const auto& one : data) {
              const float total = std::accumulate(one.begin(), one.end(), 0.0F);
              EXPECT_NEAR(total, 8.0F * static_cast<float>(one.size() / 4), 1e-3);
            }
          }
        },
        options);
  }
}

// --- sets

TEST(Sets, DifferentRanksAreAMismatch) {
  std::vector<std::string> texts(3);
  on_ranks(3, [&](Runtime& runtime) {
    const auto rank = static_cast<size_t>(runtime.rank());
    try {
      runtime.add_process_set(rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{1, 2});
      ADD_FAILURE() << "a set of different ranks";
    } catch (const UsageError& error) {
      texts[rank] = error.what();
    }
    EXPECT_THROW(runtime.add_process_set({}), UsageError);
    EXPECT_THROW(runtime.add_process_set({0, 3}), UsageError);
    EXPECT_THROW(runtime.add_process_set({1, 1}), UsageError);
    // In another order it is the same set.
    const int set =
        runtime.add_process_set(rank == 0 ? std::vector<int>{2, 0} : std::vector<int>{0, 2});
    EXPECT_EQ(set, 1);
    std::vector<float> data(3, 1.0F);
    if (rank != 1) runtime.run_all_reduce("x", view_of(data), {.set = set});
    expect_all(data, rank == 1 ? 1.0F : 2.0F);
    EXPECT_THROW(runtime.remove_process_set(rank == 1 ? 7 : set), UsageError);
    EXPECT_TRUE(runtime.remove_process_set(set));
    if (rank == 2) {
      runtime.join();
    } else {
      EXPECT_THROW(runtime.add_process_set({0, 1}), UsageError);
      runtime.join();
    }
  });
  EXPECT_NE(texts[0].find("rank 0: 0, 1; rank 1: 0, 1; rank 2: 1, 2"), std::string::npos)
      << texts[0];
  EXPECT_EQ(texts[0], texts[2]);
}

// --- messages

TEST(Messages, ATimeoutNamesWhatWasWaitedForAndHowLong) {
  RuntimeOptions options;
  options.timeout = Milliseconds(300);
  std::vector<std::string> texts(2);
  on_ranks(
      2,
      [&](Runtime& runtime) {
        std::vector<float> data(3, 1.0F);
        try {
          // Rank 1 waits without a limit, and learns that rank 0 gave up.
          if (runtime.rank() == 0) runtime.run_all_reduce("fc.weight", view_of(data));
          runtime.world().barrier({.name = "end", .timeout = kNoLimit});
          ADD_FAILURE() << runtime.rank();
        } catch (const TimeoutError& error) {
          texts[static_cast<size_t>(runtime.rank())] = error.what();
        }
      },
      options);
  EXPECT_NE(texts[0].find("agreement 'fc.weight' on rank 0: no progress for 300ms"),
            std::string::npos)
      << texts[0];
  EXPECT_NE(texts[1].find("no progress for 300ms"), std::string::npos) << texts[1];
}

}  // namespace
}  // namespace horon
