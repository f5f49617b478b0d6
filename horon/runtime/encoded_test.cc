// Operations with a codec: what it is given, what is kept for it, where it works.
#include <fmt/format.h>

#include <cstring>

#include "horon/base/crc32c.h"
#include "horon/base/error.h"
#include "horon/codec/detail_top_k.h"
#include "horon/device/detail_fake_device.h"
#include "horon/runtime/detail_on_ranks.h"

namespace horon {
namespace {

RuntimeOptions with_test_codecs() {
  RuntimeOptions options;
  add_test_codecs(options.codecs);
  return options;
}

const std::vector<size_t> kSizes = {37, 0, 16, 1, 1000, 5};  // uneven, and an empty one

// Not one of fp16's numbers; another for each place, rank and step.
float number(size_t tensor, size_t i, int rank, uint64_t step) {
  const auto mixed = static_cast<uint32_t>((tensor * 7919 + i) * 2654435761U) ^
                     static_cast<uint32_t>((step * 31 + static_cast<uint64_t>(rank)) * 40503U);
  return (static_cast<float>(mixed % 20011) - 10005.0F) / 7001.0F;
}

struct Course {
  std::string codec;
  uint64_t first = 0;  // steps
  uint64_t last = 8;
  uint64_t disturbed_from = ~0ULL;  // from that step on other tensors come between
  ReduceOp op = ReduceOp::kSum;
};

// The results of all steps on this rank.
std::vector<float> take(Runtime& runtime, const Course& course) {
  std::vector<float> results;
  for (uint64_t step = course.first; step < course.last; ++step) {
    const NamedOptions options{.op = course.op, .codec = course.codec, .step = step};
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    std::vector<float> more(100 * step, 1.0F);
    data.reserve(kSizes.size());
    for (size_t t = 0; t < kSizes.size(); ++t) {
      std::vector<float>& one = data.emplace_back(kSizes[t]);
      for (size_t i = 0; i < one.size(); ++i) one[i] = number(t, i, runtime.rank(), step);
      works.push_back(runtime.all_reduce(fmt::format("t{}", t), view_of(one), options));
      if (t == 2 && step >= course.disturbed_from)
        works.push_back(runtime.all_reduce("more", view_of(more), options));
    }
    for (const Work& work : works) work.wait();
    for (const auto& one : data) results.insert(results.end(), one.begin(), one.end());
  }
  return results;
}

// What the ranks kept at the end, and their results.
struct Ending {
  std::vector<std::vector<float>> results;
  std::vector<CodecStates> states;
  uint64_t collectives = 0;
};

Ending run(int ranks, const Course& course, RuntimeOptions options = with_test_codecs(),
           const std::vector<CodecStates>& begin = {}) {
  Ending ending;
  ending.results.resize(static_cast<size_t>(ranks));
  ending.states.resize(static_cast<size_t>(ranks));
  on_ranks(
      ranks,
      [&](Runtime& runtime) {
        const auto rank = static_cast<size_t>(runtime.rank());
        if (!begin.empty()) runtime.restore_codec_state(begin[rank]);
        ending.results[rank] = take(runtime, course);
        ending.states[rank] = runtime.save_codec_state();
        if (rank == 0) ending.collectives = runtime.counters().collectives;
      },
      options);
  return ending;
}

class EncodedContract : public testing::TestWithParam<std::string> {
 protected:
  bool keeps_something() const {
    return !with_test_codecs().codecs.make(GetParam())->state().empty();
  }
};

TEST_P(EncodedContract, AllRanksHaveTheSameBits) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
    const Ending ending = run(3, {.codec = GetParam(), .op = op});
    EXPECT_EQ(ending.results[0], ending.results[1]);
    EXPECT_EQ(ending.results[0], ending.results[2]);
  }
}

TEST_P(EncodedContract, OtherBucketsChangeNoBit) {
  const Ending plain = run(2, {.codec = GetParam()});
  const Ending disturbed = run(2, {.codec = GetParam(), .disturbed_from = 4});
  RuntimeOptions small = with_test_codecs();
  small.limits = {1, 1};  // each tensor alone
  const Ending alone = run(2, {.codec = GetParam()}, small);
  EXPECT_NE(plain.collectives, disturbed.collectives);
  EXPECT_NE(plain.collectives, alone.collectives);
  EXPECT_EQ(plain.results, disturbed.results);
  EXPECT_EQ(plain.results, alone.results);
  EXPECT_EQ(plain.states, alone.states);
}

TEST_P(EncodedContract, SavedAndRestoredItContinuesWithTheSameBits) {
  const Ending whole = run(2, {.codec = GetParam()});
  const Ending half = run(2, {.codec = GetParam(), .last = 5});
  EXPECT_EQ(half.states[0].size(), keeps_something() ? kSizes.size() : 0);
  const Course rest{.codec = GetParam(), .first = 5};
  const Ending resumed = run(2, rest, with_test_codecs(), half.states);
  std::vector<float> joined = half.results[0];
  joined.insert(joined.end(), resumed.results[0].begin(), resumed.results[0].end());
  EXPECT_EQ(joined, whole.results[0]);
  EXPECT_EQ(resumed.states, whole.states);
  if (GetParam() == "none+feedback") return;  // keeps zeros
  EXPECT_EQ(run(2, rest).results == resumed.results, !keeps_something());
}

// The numbers at the end of what was kept.
std::vector<double> arrays_of(const std::string& bytes, size_t count) {
  std::vector<double> numbers(count);
  for (size_t i = 0; i < count; ++i) {
    float one = 0;
    std::memcpy(&one, bytes.data() + bytes.size() - 4 * (count - i) - 4, 4);
    numbers[i] = one;
  }
  return numbers;
}

std::map<std::string, std::vector<double>> sums_of(const std::vector<CodecStates>& states,
                                                   size_t arrays) {
  std::map<std::string, std::vector<double>> sums;
  for (const CodecStates& one : states) {
    for (size_t t = 0; t < kSizes.size(); ++t) {
      const auto found = one.find(fmt::format("t{}", t));
      std::vector<double>& sum = sums[fmt::format("t{}", t)];
      sum.resize(arrays * kSizes[t]);
      if (found == one.end()) continue;
      const auto numbers = arrays_of(found->second, sum.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += numbers[i];
    }
  }
  return sums;
}

TEST_P(EncodedContract, AnotherNumberOfRanksTakesOverTheSum) {
  const size_t arrays = with_test_codecs().codecs.make(GetParam())->state().size();
  // A checkpoint: all of it on rank 0.
  std::vector<CodecStates> checkpoint;
  const Ending before = run(3, {.codec = GetParam(), .last = 4});
  on_ranks(3, [&](Runtime& runtime) {
    const auto rank = static_cast<size_t>(runtime.rank());
    const auto all = gather_codec_states(runtime.world(), before.states[rank]);
    EXPECT_EQ(all.size(), rank == 0 ? 3U : 0U);
    if (rank == 0) checkpoint = all;
  });
  EXPECT_EQ(checkpoint, before.states);
  const auto wanted = sums_of(checkpoint, arrays);
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<CodecStates> shares(static_cast<size_t>(ranks));
    on_ranks(
        ranks,
        [&](Runtime& runtime) {
          const bool reads = runtime.rank() == 0;
          CodecStates share = scatter_codec_states(runtime.world(),
                                                   reads ? checkpoint : std::vector<CodecStates>());
          runtime.restore_codec_state(share);
          EXPECT_EQ(runtime.save_codec_state(), share);
          shares[static_cast<size_t>(runtime.rank())] = std::move(share);
          take(runtime, {.codec = GetParam(), .first = 4, .last = 6});
        },
        with_test_codecs());
    if (ranks == 3) {
      EXPECT_EQ(shares, checkpoint);
    }
    for (const auto& [tensor, sum] : sums_of(shares, arrays)) {
      for (size_t i = 0; i < sum.size(); ++i)
        ASSERT_NEAR(sum[i], wanted.at(tensor)[i], 1e-6) << tensor << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, EncodedContract,
                         testing::ValuesIn(with_test_codecs().codecs.names()), [](const auto& one) {
                           std::string name = one.param;
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

// What 1.001 becomes on one rank, step by step.
std::vector<float> steps_of(const NamedOptions& options) {
  std::vector<float> seen;
  on_ranks(1, [&](Runtime& runtime) {
    for (int step = 0; step < 20; ++step) {
      std::vector<float> data(3, 1.001F);
      runtime.all_reduce("t", view_of(data), options).wait();
      seen.push_back(data[0]);
    }
  });
  return seen;
}

// Its first step is in the other lane.
TEST(Encoded, AnUrgentTensorKeepsWhatItsFirstStepLost) {
  EXPECT_EQ(steps_of({.priority = 1, .codec = "bf16+feedback"}),
            steps_of({.codec = "bf16+feedback"}));
}

// --- names

TEST(Encoded, AnUnknownCodecIsAnErrorThatListsTheKnownOnes) {
  on_ranks(
      1,
      [](Runtime& runtime) {
        std::vector<float> data(3, 1.0F);
        try {
          runtime.all_reduce("t", view_of(data), {.codec = "top_quartet"});
          ADD_FAILURE() << "there is no such codec";
        } catch (const UsageError& error) {
          EXPECT_STREQ(error.what(),
                       "unknown codec 'top_quartet', did you mean 'top_quarter'?; there are: bf16, "
                       "fp16, none, small_dgc, top_quarter");
        }
        // Of those that remember only tensors with a name can come.
        EXPECT_THROW(runtime.all_reduce("", view_of(data), {.codec = "small_dgc", .step = 1}),
                     UsageError);
      },
      with_test_codecs());
}

// Passes on what is not zero: nothing, on some ranks.
class Terse final : public Codec {
 public:
  std::string name() const override { return "terse"; }
  bool is_dense() const override { return false; }
  size_t max_bytes(size_t count, Segments) const override { return count * sizeof(float); }
  size_t encode(std::span<const float> in, Segments, std::span<std::byte> out) override {
    if (std::ranges::count(in, 0.0F) == static_cast<ptrdiff_t>(in.size())) return 0;
    std::ranges::copy(std::as_bytes(in), out.begin());
    return in.size_bytes();
  }
  void decode(std::span<const std::byte> wire, Segments, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0F);
    std::ranges::copy(wire, std::as_writable_bytes(out).begin());
  }
};

TEST(Encoded, ARankWithAnEmptyEncodingCountsInTheAverage) {
  RuntimeOptions options;
  options.codecs.add("terse", [] { return std::make_unique<Terse>(); });
  on_ranks(
      4,
      [](Runtime& runtime) {
        std::vector<float> data(8, runtime.rank() == 2 ? 4.0F : 0.0F);
        runtime.run_all_reduce("t", view_of(data), {.op = ReduceOp::kAverage, .codec = "terse"});
        expect_all(data, 1.0F);
      },
      options);
}

// --- steps

TEST(Encoded, DifferentStepsAreAMismatchBeforeAnythingIsChanged) {
  on_ranks(
      2,
      [](Runtime& runtime) {
        const auto rank = static_cast<uint64_t>(runtime.rank());
        for (const std::string name : {"a", ""}) {  // agreed on, by plan, and unnamed
          for (uint64_t step = 0; step < 6; ++step) {
            const CodecStates before = runtime.save_codec_state();
            std::vector<float> data(8, 1.0F);
            const bool wrong = step == 0 || step == 4;
            const std::string codec = name.empty() ? "top_quarter" : "small_dgc";
            const NamedOptions options{.codec = codec, .step = wrong ? step + 7 * rank : step};
            try {
              runtime.run_all_reduce(name, view_of(data), options);
              EXPECT_FALSE(wrong) << step;
            } catch (const UsageError& error) {
              EXPECT_TRUE(wrong) << error.what();
              EXPECT_NE(std::string(error.what()).find(fmt::format("at step {}", step + 7)),
                        std::string::npos)
                  << error.what();
              expect_all(data, 1.0F);
              EXPECT_EQ(runtime.save_codec_state(), before);
            }
          }
        }
      },
      with_test_codecs());
}

// --- what is kept

std::string message_of(const std::function<void()>& action, ExitCode code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), code);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(CodecState, DamagedBytesAndOtherCodecsOrSizesAreRefused) {
  const Ending kept = run(1, {.codec = "fp16+feedback", .last = 3});
  const CodecStates& good = kept.states[0];
  on_ranks(1, [&](Runtime& runtime) {
    runtime.restore_codec_state(good);
    for (size_t at = 0; at < good.at("t0").size(); ++at) {
      CodecStates bad = good;
      bad["t0"][at] = static_cast<char>(bad["t0"][at] ^ 4);
      EXPECT_EQ(message_of([&] { runtime.restore_codec_state(bad); }, ExitCode::kCheckpoint),
                "what a codec kept for 't0': its checksum is wrong");
      bad["t0"] = good.at("t0").substr(0, at);
      EXPECT_NE(message_of([&] { runtime.restore_codec_state(bad); }, ExitCode::kCheckpoint)
                    .find("what a codec kept for 't0': "),
                std::string::npos);
    }
    std::string later = good.at("t0").substr(0, good.at("t0").size() - 4);
    later[4] = 2;  // the number of the layout
    const uint32_t sum = crc32c(later.data(), later.size());
    later.append(reinterpret_cast<const char*>(&sum), 4);
    EXPECT_EQ(message_of(
                  [&] {
                    runtime.restore_codec_state({{"t0", later}});
                  },
                  ExitCode::kCheckpoint),
              "what a codec kept for 't0': layout 2; this version reads 1");
    EXPECT_EQ(runtime.save_codec_state(), good);  // all that time

    std::vector<float> data(38, 1.0F);
    const auto send = [&](const std::string& codec) {
      runtime.run_all_reduce("t0", view_of(data), {.codec = codec});
    };
    EXPECT_EQ(message_of([&] { send("fp16+feedback"); }, ExitCode::kCheckpoint),
              "'t0' comes with codec fp16+feedback and 38 numbers, but what was restored for it is "
              "of codec fp16+feedback and 37 numbers; use the codec that the run was started with, "
              "or do not restore its state");
    data.resize(37);
    EXPECT_NE(
        message_of([&] { send("fp16"); }, ExitCode::kCheckpoint).find("comes with codec fp16 "),
        std::string::npos);
    send("fp16+feedback");
    data.resize(38);  // from now on it is a tensor that changed its size: it starts anew
    send("fp16+feedback");
  });
}

TEST(CodecState, OfRanksWithDifferentArraysIsNotSummed) {
  const Ending half = run(1, {.codec = "fp16+feedback", .last = 3});
  const Ending brain = run(1, {.codec = "bf16+feedback", .last = 3});
  const std::vector<CodecStates> kept = {half.states[0], brain.states[0]};
  EXPECT_EQ(deal_codec_states(kept, 1, 2), brain.states[0]);
  EXPECT_EQ(message_of([&] { deal_codec_states(kept, 0, 1); }, ExitCode::kCheckpoint),
            "what a codec kept for 't0': ranks have different states");
  // Rank 0's trouble is an error on all ranks.
  std::vector<CodecStates> bad = half.states;
  bad[0]["t0"].pop_back();
  on_ranks(2, [&](Runtime& runtime) {
    const bool reads = runtime.rank() == 0;
    EXPECT_NE(message_of(
                  [&] {
                    scatter_codec_states(runtime.world(), reads ? bad : std::vector<CodecStates>());
                  },
                  ExitCode::kCheckpoint)
                  .find(reads ? "checksum" : "rank 0 cannot read"),
              std::string::npos);
  });
}

TEST(CodecState, IsKeptPerProcessSetAndNotSavedDuringOperations) {
  on_ranks(2, [](Runtime& runtime) {
    const int set = runtime.add_process_set({0, 1});
    std::vector<float> data(3, 1.001F);
    runtime.run_all_reduce("t", view_of(data), {.set = set, .codec = "bf16+feedback"});
    EXPECT_EQ(runtime.save_codec_state().size(), 0U);
    EXPECT_EQ(runtime.save_codec_state(set).size(), 1U);
    EXPECT_THROW(runtime.save_codec_state(7), UsageError);
    if (runtime.rank() == 0) {
      const Work work = runtime.all_reduce("t", view_of(data), {.codec = "bf16+feedback"});
      EXPECT_THROW(runtime.save_codec_state(), UsageError);
      EXPECT_THROW(runtime.restore_codec_state({}), UsageError);
      runtime.world().barrier();
      work.wait();
    } else {
      runtime.world().barrier();
      runtime.run_all_reduce("t", view_of(data), {.codec = "bf16+feedback"});
    }
  });
}

// --- device memory

// Works on the device's memory as it is: an inner codec does, behind its back.
class OnDevice final : public Codec {
 public:
  OnDevice(std::unique_ptr<Codec> inner, const FakeDevice& device)
      : inner_(std::move(inner)), device_(device) {}
  std::string name() const override { return "on_device"; }
  bool is_dense() const override { return inner_->is_dense(); }
  DType wire_dtype() const override { return inner_->wire_dtype(); }
  std::vector<std::string> state() const override { return inner_->state(); }
  bool takes(const Device&) const override { return true; }
  size_t max_bytes(size_t count, Segments segments) const override {
    return inner_->max_bytes(count, segments);
  }
  size_t encode(std::span<const float> in, Segments segments, std::span<std::byte> out) override {
    EXPECT_FALSE(context().device.is_cpu());
    EXPECT_NE(context().stream, nullptr);
    std::vector<Segment> found(segments.begin(), segments.end());
    for (Segment& segment : found) segment.state = find(segment.state);
    return inner_->encode(find(in), found, find(out));
  }
  void decode(std::span<const std::byte> wire, Segments segments,
              std::span<float> out) const override {
    inner_->decode(find(wire), segments, find(out));
  }
  void decode_add(std::span<const std::byte> wire, Segments segments,
                  std::span<float> out) const override {
    inner_->decode_add(find(wire), segments, find(out));
  }

 private:
  template <typename T>
  std::span<T> find(std::span<T> span) const {
    EXPECT_TRUE(span.empty() || device_.owns(span.data()));
    return {reinterpret_cast<T*>(device_.find(span.data())), span.size()};
  }
  std::unique_ptr<Codec> inner_;
  const FakeDevice& device_;
};

// The course of take(), in memory of the device.
Ending run_on_fake(const std::string& codec, const std::string& inner, uint64_t first,
                   const std::vector<CodecStates>& begin = {}) {
  const auto device = std::make_shared<FakeDevice>();
  RuntimeOptions options = with_test_codecs();
  options.codecs.add("on_device", [&] {
    return std::make_unique<OnDevice>(with_test_codecs().codecs.make(inner), *device);
  });
  Ending ending{std::vector<std::vector<float>>(2), std::vector<CodecStates>(2)};
  on_ranks(
      2,
      [&](Runtime& runtime) {
        const auto rank = static_cast<size_t>(runtime.rank());
        if (!begin.empty()) runtime.restore_codec_state(begin[rank]);
        for (uint64_t step = first; step < first + 4; ++step) {
          std::vector<OwnedBuffer> data;
          std::vector<Work> works;
          for (size_t t = 0; t < kSizes.size(); ++t) {
            data.push_back(device->allocate(kSizes[t], DType::kF32, 0));
            auto* values = reinterpret_cast<float*>(device->find(data[t].view().data));
            for (size_t i = 0; i < kSizes[t]; ++i) values[i] = number(t, i, runtime.rank(), step);
            works.push_back(runtime.all_reduce(fmt::format("t{}", t), data[t].view(),
                                               {.codec = codec, .step = step}));
          }
          for (const Work& work : works) work.wait();
          for (size_t t = 0; t < kSizes.size(); ++t) {
            const auto* values = reinterpret_cast<float*>(device->find(data[t].view().data));
            ending.results[rank].insert(ending.results[rank].end(), values, values + kSizes[t]);
          }
        }
        ending.states[rank] = runtime.save_codec_state();
      },
      options, device);
  return ending;
}

TEST(EncodedOnADevice, HostCodecsAreStagedAndOthersTakeItAsItIs) {
  for (const std::string codec : {"bf16", "fp16+feedback", "top_quarter", "small_dgc"}) {
    const Ending wanted = run(2, {.codec = codec, .last = 4});
    const Ending staged = run_on_fake(codec, "none", 0);
    EXPECT_EQ(staged.results, wanted.results) << codec;
    EXPECT_EQ(staged.states, wanted.states) << codec;
    if (codec == "fp16+feedback") continue;
    const Ending native = run_on_fake("on_device", codec, 0);
    EXPECT_EQ(native.results, wanted.results) << codec;
  }
}

TEST(EncodedOnADevice, CodecStateInDeviceMemoryIsSavedAndRestored) {
  const Ending first = run_on_fake("on_device", "small_dgc", 0);
  const Ending resumed = run_on_fake("on_device", "small_dgc", 4, first.states);
  const Ending wanted = run(2, {.codec = "small_dgc"});
  std::vector<float> joined = first.results[0];
  joined.insert(joined.end(), resumed.results[0].begin(), resumed.results[0].end());
  EXPECT_EQ(joined, wanted.results[0]);
}

}  // namespace
}  // namespace horon
