#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "horon/base/error.h"
#include "tests/contract/suite.h"
#include "tests/support/reference.h"

// Exact sums: the bits of the definition, whoever holds what.
namespace horon::contract {
namespace {

using testing_support::mix;

// The definition once more.
template <typename T>
T tree(const std::vector<T>& shards, size_t begin, size_t width) {
  if (width == 1) return shards[begin];
  const T left = tree(shards, begin, width / 2);
  return begin + width / 2 >= shards.size() ? left
                                            : left + tree(shards, begin + width / 2, width / 2);
}

template <typename T>
constexpr DType kType = sizeof(T) == 4 ? DType::kF32 : DType::kF64;

// NaN, infinities and 54 decades in one tensor: any other order of adding has other bits.
template <typename T>
T shard_value(uint64_t shard, uint64_t i) {
  const uint64_t bits = mix(shard * 7919 + i);
  if (i % 997 == 3 && shard == 2) return std::numeric_limits<T>::quiet_NaN();
  if (i % 997 == 5 && shard == 1) return std::numeric_limits<T>::infinity();
  const int exponent = static_cast<int>(bits % 181) - 90;
  const double value = std::ldexp(1.0 + static_cast<double>(bits >> 40) * 0x1p-24, exponent);
  return static_cast<T>(shard % 2 == 1 ? -value : value);
}

// What the sum or average of shards 0 to n-1 must be, to the bit; which NaN it is stays open.
template <typename T>
void expect_tree(const TestBuffer& out, uint64_t shards, ReduceOp op, const std::string& what) {
  uint64_t width = 1;
  while (width < shards) width *= 2;
  const OwnedBuffer result = out.host();
  for (uint64_t i = 0; i < result.view().count; ++i) {
    std::vector<T> values;
    for (uint64_t s = 0; s < shards; ++s) values.push_back(shard_value<T>(s, i));
    T expected = tree(values, 0, width);
    if (op == ReduceOp::kAverage) expected /= static_cast<T>(shards);
    const T found = result.as<T>()[i];
    const bool both_nan = std::isnan(expected) && std::isnan(found);
    expect(both_nan || std::memcmp(&expected, &found, sizeof(T)) == 0,
           fmt::format("{}: {} of {} {}, element {} of {}: {} instead of {}", what, name_of(op),
                       shards, name_of(kType<T>), i, result.view().count, found, expected));
  }
}

template <typename T>
void add_shard(Context& context, ExactSum& sum, uint64_t shard) {
  const OwnedBuffer values = OwnedBuffer::host(sum.spec().count, kType<T>);
  for (uint64_t i = 0; i < sum.spec().count; ++i) values.as<T>()[i] = shard_value<T>(shard, i);
  const TestBuffer data(context, sum.spec().count, kType<T>, false);
  data.upload(values.view());
  sum.add(shard, data.view());
}

// Over 8 logical shards, in blocks, like cards, like cards and out of order.
template <typename T>
void check_exact(Context& context, uint64_t count, int deal, ReduceOp op) {
  Communicator& comm = context.comm;
  constexpr uint64_t kShards = 8;
  const auto ranks = static_cast<uint64_t>(comm.size());
  ExactSum sum = comm.exact_sum(count, kType<T>, kShards);
  for (uint64_t k = 0; k < kShards; ++k) {
    const uint64_t shard = deal == 2 ? (k * 5 + 3) % kShards : k;
    const uint64_t owner = deal == 0 ? shard * ranks / kShards : shard % ranks;
    if (owner == static_cast<uint64_t>(comm.rank())) add_shard<T>(context, sum, shard);
  }
  const TestBuffer out(context, count, kType<T>, deal == 1);
  comm.all_reduce(sum, out.view(), {.op = op});
  expect_tree<T>(out, kShards, op, fmt::format("deal {}", deal));
}

void exact(Context& context) {
  for (int deal : {0, 1, 2}) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      check_exact<float>(context, 1000, deal, op);
      check_exact<double>(context, 3001, deal, op);
    }
    for (uint64_t count : {0ULL, 1ULL, 70'001ULL})
      check_exact<float>(context, count, deal, ReduceOp::kSum);
  }
}

// Plain: shards are the ranks; in one piece and in seven buckets, which are small.
template <typename T>
void check_plain(Context& context, ReduceOp op, bool heap) {
  Communicator& comm = context.comm;
  const uint64_t count = 20'011;
  const TestBuffer whole(context, count, kType<T>, heap);
  const TestBuffer pieces(context, count, kType<T>, heap);
  const OwnedBuffer mine = OwnedBuffer::host(count, kType<T>);
  for (uint64_t i = 0; i < count; ++i)
    mine.as<T>()[i] = shard_value<T>(static_cast<uint64_t>(comm.rank()), i);
  whole.upload(mine.view());
  pieces.upload(mine.view());
  const ReduceOptions options = {.op = op, .reduction = Reduction::kExact};
  comm.all_reduce(whole.view(), options);
  for (uint64_t k = 0; k < 7; ++k) {
    const uint64_t lo = count * k / 7;
    comm.all_reduce(pieces.view().slice(lo, count * (k + 1) / 7 - lo), options);
  }
  expect_tree<T>(whole, static_cast<uint64_t>(comm.size()), op, "whole");
  expect_tree<T>(pieces, static_cast<uint64_t>(comm.size()), op, "in buckets");
}

void exact_plain(Context& context) {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
    for (bool heap : {false, true}) {
      check_plain<float>(context, op, heap);
      check_plain<double>(context, op, heap);
    }
  }
}

// Blocks of any length are fine; shards dealt like cards are refused, on all ranks, before anything
// moves.
void exact_dealing(Context& context) {
  Communicator& comm = context.comm;
  constexpr uint64_t kShards = 128;
  const auto ranks = static_cast<uint64_t>(comm.size());
  const TestBuffer out(context, 50, DType::kF32, true);
  ExactSum blocks = comm.exact_sum(50, DType::kF32, kShards);
  ExactSum cards = comm.exact_sum(50, DType::kF32, kShards);
  for (uint64_t shard = 0; shard < kShards; ++shard) {
    if (shard * ranks / kShards == static_cast<uint64_t>(comm.rank()))
      add_shard<float>(context, blocks, shard);
    if (shard % ranks == static_cast<uint64_t>(comm.rank()))
      add_shard<float>(context, cards, shard);
  }
  std::string message;
  try {
    comm.all_reduce(cards, out.view());
  } catch (const UsageError& error) {
    message = error.what();
  }
  const bool refuses = ranks > 1 && kShards / ranks > 14;
  expect(refuses != message.empty(), "shards dealt like cards: '" + message + "'");
  expect(!refuses || message.find(fmt::format(" {} arrays of 128 shards",
                                              (kShards + ranks - 1) / ranks)) != std::string::npos,
         "the numbers are missing: " + message);
  comm.all_reduce(blocks, out.view());
  expect_tree<float>(out, kShards, ReduceOp::kSum, "blocks");
}

// Nothing moves if an exact sum in a group cannot be finished.
void grouped_exact(Context& context) {
  Communicator& comm = context.comm;
  if (comm.size() < 2) return;
  std::vector<float> a(10, 1.0F);
  std::vector<float> one(4, 1.0F);
  ExactSum sum = comm.exact_sum(4, DType::kF32, 8);
  sum.add(3, view_of(one));
  bool thrown = false;
  try {
    comm.run(
        Request::group({Request::all_reduce(view_of(a)), Request::all_reduce(sum, view_of(one))}));
  } catch (const UsageError&) {
    thrown = true;
  }
  expect(thrown && a == std::vector<float>(10, 1.0F), "a payload moved");
}

void exact_duplicate(Context& context) {
  Communicator& comm = context.comm;
  if (comm.size() < 2) return;
  ExactSum sum = comm.exact_sum(4, DType::kF32, 8);
  std::vector<float> one(4, 1.0F);
  sum.add(3, view_of(one));
  bool thrown = false;
  try {
    comm.all_reduce(sum, view_of(one));
  } catch (const UsageError& error) {
    thrown = std::string(error.what()).find("shard 3") != std::string::npos;
  }
  expect(thrown, "one shard on two ranks was not noticed");
}

}  // namespace

std::vector<Check> exact_checks() {
  return {{"exact", exact},
          {"exact_plain", exact_plain},
          {"exact_dealing", exact_dealing},
          {"grouped_exact", grouped_exact},
          {"exact_duplicate", exact_duplicate}};
}

}  // namespace horon::contract
