#include "horon/codec/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "horon/base/error.h"
#include "horon/codec/detail_top_k.h"

// What every codec promises.
namespace horon {
namespace {

constexpr uint64_t kLater = 9;  // a step after all warm-ups

// The project's own, and sparse ones.
CodecRegistry all_codecs() {
  CodecRegistry codecs;
  add_test_codecs(codecs);
  return codecs;
}

// A codec with what is kept for it, as the runtime does it.
struct Rank {
  explicit Rank(const std::string& name) : codec(all_codecs().make(name)) {}
  std::unique_ptr<Codec> codec;
  std::map<std::string, std::vector<float>> kept;

  std::vector<Segment> with_state(std::vector<Segment> segments) {
    for (Segment& segment : segments) {
      std::vector<float>& state = kept[segment.tensor];
      state.resize(segment.count * codec->state().size());
      segment.state = state;
    }
    return segments;
  }
  std::vector<std::byte> encode(const std::vector<float>& in, const std::vector<Segment>& parts) {
    std::vector<std::byte> wire(codec->max_bytes(in.size(), parts));
    wire.resize(codec->encode(in, with_state(parts), wire));
    return wire;
  }
  std::vector<float> there_and_back(const std::vector<float>& in,
                                    const std::vector<Segment>& parts) {
    std::vector<float> out(in.size(), -1.0F);
    codec->decode(encode(in, parts), parts, out);
    return out;
  }
};

std::vector<Segment> alone(size_t count, uint64_t step = kLater) {
  return {{.tensor = "t", .count = count, .step = step}};
}

class CodecContract : public testing::TestWithParam<std::string> {
 protected:
  Rank rank_{GetParam()};
  // Of what was kept; sparse codecs leave out the rest.
  double relative_error() const {
    if (GetParam().starts_with("fp16")) return std::ldexp(1.0, -11);
    if (GetParam().starts_with("bf16")) return std::ldexp(1.0, -8);
    return 0.0;
  }
  bool is_dense() const { return rank_.codec->is_dense(); }
};

std::vector<float> normal(size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = std::normal_distribution<float>()(random);
  return values;
}

TEST_P(CodecContract, KeepsTheDocumentedPrecision) {
  for (const size_t count : {0U, 1U, 7U, 8U, 9U, 1000U}) {
    Rank fresh(GetParam());
    const auto in = normal(count);
    const auto out = fresh.there_and_back(in, alone(count));
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!is_dense() && out[i] == 0.0F) continue;
      ++kept;
      ASSERT_LE(std::abs(out[i] - in[i]), relative_error() * std::abs(in[i]) + 1e-7) << i;
    }
    EXPECT_GE(kept, is_dense() ? count : (count + 15) / 16);
  }
}

TEST_P(CodecContract, NamesItselfAndItsWire) {
  EXPECT_EQ(rank_.codec->name(), GetParam());
  const auto wire = rank_.encode(normal(100), alone(100));
  EXPECT_LE(wire.size(), rank_.codec->max_bytes(100, alone(100)));
  const size_t dense = 100 * size_of(rank_.codec->wire_dtype());
  EXPECT_TRUE(!is_dense() || wire.size() == dense) << wire.size();
}

TEST_P(CodecContract, RefusesBytesOfAnotherSize) {
  const auto wire = rank_.encode(normal(10), alone(10));
  std::vector<float> out(40);
  EXPECT_THROW(rank_.codec->decode(wire, alone(40), out), Error);
  EXPECT_THROW(rank_.codec->decode_add(wire, alone(40), out), Error);
}

TEST_P(CodecContract, AddsWhatItDecodes) {
  const auto wire = rank_.encode(std::vector<float>(20, 2.0F), alone(20));
  std::vector<float> decoded(20);
  std::vector<float> out(20, 3.0F);
  rank_.codec->decode(wire, alone(20), decoded);
  rank_.codec->decode_add(wire, alone(20), out);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], decoded[i] + 3.0F);
  const auto sent = std::ranges::count(decoded, 2.0F);
  EXPECT_EQ(sent + std::ranges::count(decoded, 0.0F), 20);
  EXPECT_TRUE(is_dense() ? sent == 20 : sent > 0 && sent < 10) << sent;
}

TEST_P(CodecContract, HostileNumbersDoNotSpread) {
  const float huge = std::numeric_limits<float>::infinity();
  rank_.there_and_back({1.0F, huge, std::nanf(""), -huge}, alone(4));
  for (int step = 0; step < 8; ++step) {
    const auto next = rank_.there_and_back({1.0F, 1.0F, 1.0F, 1.0F}, alone(4));
    for (const float value : next) EXPECT_TRUE(std::isfinite(value));
    EXPECT_TRUE(!is_dense() || std::ranges::count(next, 1.0F) == 4) << step;
  }
}

TEST_P(CodecContract, ThreadsChangeNoBit) {
  const auto in = normal((1U << 20) + 77);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    Rank fresh(GetParam());
    fresh.codec->set_context({.threads = threads});
    fresh.there_and_back(in, alone(in.size()));
    // With what the first one left.
    results.push_back(fresh.there_and_back(in, alone(in.size())));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// --- buckets

// Uneven ones, an empty one, and gaps with numbers of nobody.
std::vector<Segment> bucket(uint64_t step) {
  return {{.tensor = "a", .offset = 0, .count = 5, .step = step},
          {.tensor = "empty", .offset = 16, .count = 0, .step = step},
          {.tensor = "b", .offset = 16, .count = 37, .step = step},
          {.tensor = "c", .offset = 64, .count = 16, .step = step},
          {.tensor = "d", .offset = 80, .count = 1, .step = step}};
}

TEST_P(CodecContract, ATensorHasTheSameBitsAloneAndInABucket) {
  Rank separate(GetParam());
  for (uint64_t step = 0; step < 6; ++step) {
    std::vector<float> in(96, 1e6F);
    const auto values = normal(96, static_cast<unsigned>(step + 1));
    for (const Segment& segment : bucket(step))
      std::copy_n(values.begin() + static_cast<ptrdiff_t>(segment.offset), segment.count,
                  in.begin() + static_cast<ptrdiff_t>(segment.offset));
    const auto together = rank_.there_and_back(in, bucket(step));
    for (Segment segment : bucket(step)) {
      const std::span<const float> part(in.data() + segment.offset, segment.count);
      const std::span<const float> got(together.data() + segment.offset, segment.count);
      segment.offset = 0;
      const auto own = separate.there_and_back({part.begin(), part.end()}, {segment});
      EXPECT_TRUE(std::ranges::equal(own, got)) << segment.tensor << " in step " << step;
    }
  }
  EXPECT_EQ(rank_.kept, separate.kept);
}

TEST_P(CodecContract, EmptyInputsDecodeToEmptyResults) {
  EXPECT_TRUE(rank_.there_and_back({}, {}).empty());
  const Segment empty{.tensor = "e", .step = kLater};
  EXPECT_TRUE(rank_.there_and_back({}, {empty, empty}).empty());
}

// --- state and step

TEST_P(CodecContract, WhatItKeepsIsInItsState) {
  for (uint64_t step = 0; step < 3; ++step)
    rank_.there_and_back(normal(50, static_cast<unsigned>(step)), alone(50, step));
  Rank another(GetParam());
  another.kept = rank_.kept;
  for (uint64_t step = 3; step < 6; ++step) {
    const auto in = normal(50, static_cast<unsigned>(step));
    EXPECT_EQ(rank_.there_and_back(in, alone(50, step)),
              another.there_and_back(in, alone(50, step)));
  }
  EXPECT_EQ(rank_.kept["t"].size(), 50 * rank_.codec->state().size());
}

TEST_P(CodecContract, StepsOfDenseOnesChangeNoSizeAndSparseOnesShrink) {
  const size_t early = rank_.encode(normal(64), alone(64, 0)).size();
  const size_t late = rank_.encode(normal(64), alone(64, kLater)).size();
  EXPECT_TRUE(is_dense() ? early == late : early >= 2 * late) << early << " and " << late;
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecContract, testing::ValuesIn(all_codecs().names()),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

TEST(Feedback, NothingIsLostInTheLongRun) {
  for (const std::string name : {"fp16", "bf16"}) {
    const float value = 1.0F + 1.0F / 3000;  // not one of theirs
    double with = 0;
    double without = 0;
    Rank feedback(name + "+feedback");
    Rank plain(name);
    for (int step = 0; step < 3000; ++step) {
      with += feedback.there_and_back({value}, alone(1))[0];
      without += plain.there_and_back({value}, alone(1))[0];
    }
    EXPECT_NEAR(with, 3000.0 * value, 0.01) << name;
    EXPECT_GT(std::abs(without - 3000.0 * value), 0.3) << name;
  }
}

TEST(Feedback, WhatWasNotSentIsInTheState) {
  Rank rank("top_quarter+feedback");
  std::vector<double> wanted(40);
  std::vector<double> sent(40);
  for (unsigned step = 0; step < 100; ++step) {
    const auto in = normal(40, step);
    const auto out = rank.there_and_back(in, alone(40, step));
    for (size_t i = 0; i < 40; ++i) wanted[i] += in[i];
    for (size_t i = 0; i < 40; ++i) sent[i] += out[i];
  }
  for (size_t i = 0; i < 40; ++i) EXPECT_NEAR(sent[i] + rank.kept["t"][i], wanted[i], 1e-4) << i;
}

TEST(CodecStep, CodecsThatNeedTheStepRefuseToGuessIt) {
  Rank rank("small_dgc");
  EXPECT_THROW(rank.encode(normal(8), {{.tensor = "t", .count = 8}}), UsageError);
}

// --- names

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(CodecNames, ListBuiltInAndOwnCodecs) {
  CodecRegistry codecs;
  EXPECT_EQ(codecs.names(), (std::vector<std::string>{"bf16", "fp16", "none", "bf16+feedback",
                                                      "fp16+feedback", "none+feedback"}));
  EXPECT_EQ(message_of([&] { codecs.make("top_quarter"); }),
            "unknown codec 'top_quarter'; there are: bf16, fp16, none");
  codecs.add("top_quarter", [] { return std::make_unique<TopQuarter>(); });
  EXPECT_EQ(codecs.make("top_quarter")->name(), "top_quarter");
  EXPECT_EQ(codecs.make("top_quarter+feedback")->state(), (std::vector<std::string>{"lost"}));
  EXPECT_EQ(message_of([&] { codecs.make("top_quartet"); }),
            "unknown codec 'top_quartet', did you mean 'top_quarter'?; there are: bf16, fp16, "
            "none, top_quarter");
  EXPECT_THROW(codecs.make("+feedback"), UsageError);
  EXPECT_THROW(codecs.make(""), UsageError);
}

TEST(CodecNames, RefuseDuplicatesAndReservedCharacters) {
  CodecRegistry codecs;
  const auto mine = [] { return std::make_unique<TopQuarter>(); };
  EXPECT_EQ(message_of([&] { codecs.add("fp16", mine); }), "codec 'fp16' is registered twice");
  EXPECT_THROW(codecs.add("", mine), UsageError);
  EXPECT_THROW(codecs.add("mine+feedback", mine), UsageError);
  EXPECT_EQ(codecs.make("fp16")->name(), "fp16");
}

}  // namespace
}  // namespace horon
