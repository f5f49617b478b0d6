#include "horon/codec/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "horon/base/error.h"
#include "horon/codec/detail_top_k.h"

// What every codec promises.
namespace horon {
namespace {

std::vector<std::byte> encode(Codec& codec, const std::vector<float>& in) {
  std::vector<std::byte> wire(codec.max_bytes(in.size()));
  wire.resize(codec.encode("t", in, wire));
  return wire;
}

// The project's own, and a sparse one.
std::unique_ptr<Codec> make(const std::string& name) {
  if (name == "top_quarter") return std::make_unique<TopQuarter>();
  return make_codec(name);
}
std::vector<std::string> all_names() {
  std::vector<std::string> names = codec_names();
  names.emplace_back("top_quarter");
  return names;
}

class CodecContract : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Codec> codec_ = make(GetParam());
  // Of what was kept; sparse codecs leave out the rest.
  double relative_error() const {
    if (GetParam().starts_with("fp16")) return std::ldexp(1.0, -11);
    if (GetParam().starts_with("bf16")) return std::ldexp(1.0, -8);
    return 0.0;
  }
  std::vector<float> there_and_back(const std::vector<float>& in) {
    std::vector<float> out(in.size(), -1.0F);
    codec_->decode(encode(*codec_, in), out);
    return out;
  }
};

std::vector<float> normal(size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = std::normal_distribution<float>()(random);
  return values;
}

TEST_P(CodecContract, KeepsTheDocumentedPrecision) {
  for (const size_t count : {0U, 1U, 7U, 8U, 9U, 1000U}) {
    const auto in = normal(count);
    const auto out = there_and_back(in);
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!codec_->is_dense() && out[i] == 0.0F) continue;
      ++kept;
      ASSERT_LE(std::abs(out[i] - in[i]), relative_error() * std::abs(in[i]) + 1e-7) << i;
    }
    EXPECT_GE(kept, codec_->is_dense() ? count : (count + 3) / 4);
    codec_ = make(GetParam());  // what it remembers belongs to one tensor
  }
}

TEST_P(CodecContract, NamesItselfAndItsWire) {
  EXPECT_EQ(codec_->name(), GetParam());
  const auto wire = encode(*codec_, normal(100));
  if (codec_->is_dense()) {
    EXPECT_EQ(wire.size(), 100 * size_of(codec_->wire_dtype()));
  }
}

TEST_P(CodecContract, RefusesBytesOfAnotherSize) {
  const auto wire = encode(*codec_, normal(10));
  std::vector<float> out(14);
  EXPECT_THROW(codec_->decode(wire, out), Error);
  EXPECT_THROW(codec_->decode_add(wire, out), Error);
}

TEST_P(CodecContract, AddsWhatItDecodes) {
  const auto wire = encode(*codec_, std::vector<float>(20, 2.0F));
  std::vector<float> alone(20);
  std::vector<float> out(20, 3.0F);
  codec_->decode(wire, alone);
  codec_->decode_add(wire, out);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], alone[i] + 3.0F);
  EXPECT_EQ(std::ranges::count(alone, 2.0F), codec_->is_dense() ? 20 : 5);
}

TEST_P(CodecContract, HostileNumbersDoNotSpread) {
  const float huge = std::numeric_limits<float>::infinity();
  there_and_back({1.0F, huge, std::nanf(""), -huge});
  const auto next = there_and_back({1.0F, 1.0F, 1.0F, 1.0F});
  EXPECT_EQ(std::ranges::count(next, 1.0F), codec_->is_dense() ? 4 : 1);
  for (const float value : next) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(CodecContract, ThreadsChangeNoBit) {
  const auto in = normal((1U << 20) + 77);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    codec_ = make(GetParam());
    codec_->set_threads(threads);
    there_and_back(in);
    results.push_back(there_and_back(in));  // with what the first one left
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecContract, testing::ValuesIn(all_names()),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

TEST(Feedback, NothingIsLostInTheLongRun) {
  for (const char* name : {"fp16", "bf16"}) {
    const float value = 1.0F + 1.0F / 3000;  // not one of theirs
    double with = 0;
    double without = 0;
    auto feedback = make_codec(std::string(name) + "+feedback");
    auto plain = make_codec(name);
    std::vector<float> out(1);
    for (int step = 0; step < 3000; ++step) {
      feedback->decode(encode(*feedback, {value}), out);
      with += out[0];
      plain->decode(encode(*plain, {value}), out);
      without += out[0];
    }
    EXPECT_NEAR(with, 3000.0 * value, 0.01) << name;
    EXPECT_GT(std::abs(without - 3000.0 * value), 0.3) << name;
  }
  EXPECT_THROW(make_codec("fp15"), UsageError);
  EXPECT_THROW(make_codec("+feedback"), UsageError);
}

}  // namespace
}  // namespace horon
