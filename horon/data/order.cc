#include "horon/data/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "horon/base/error.h"
#include "horon/base/registry.h"
#include "horon/data/random.h"

namespace horon {
namespace {

constexpr int kRounds = 6;

// Streams of random numbers that have nothing to do with each other.
constexpr uint64_t kChunkStream = 0x6368756e6bULL;
constexpr uint64_t kRankStream = 0x72616e6bULL;

// [0, bound), from a hash of `number`; without a division.
uint64_t below(uint64_t bound, uint64_t number) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(mix_bits(number)) * bound >> 64);
}
uint64_t wrapped(uint64_t value, uint64_t size) { return value >= size ? value - size : value; }

class PlainOrder final : public EpochOrder {
 public:
  PlainOrder(uint64_t size, uint64_t seed, uint64_t epoch, bool shuffles)
      : permutation_(size, seed, epoch), shuffles_(shuffles) {}
  uint64_t size() const override { return permutation_.size(); }
  uint64_t at(uint64_t position) const override {
    return shuffles_ ? permutation_.at(position) : position;
  }

 private:
  Permutation permutation_;
  bool shuffles_;
};

// Chunks in a random order; the samples of each window of chunks in a random order.
class ChunkedOrder final : public EpochOrder {
 public:
  ChunkedOrder(std::span<const uint64_t> chunks, uint64_t epoch, const OrderOptions& options) {
    std::vector<uint64_t> starts(chunks.size() + 1);
    std::partial_sum(chunks.begin(), chunks.end(), starts.begin() + 1);
    const Permutation order(chunks.size(), options.seed ^ kChunkStream, epoch);
    const auto width = static_cast<uint64_t>(std::max(options.window_chunks, 1));
    for (uint64_t i = 0; i < chunks.size(); ++i) {
      const uint64_t chunk = order.at(i);
      if (i % width == 0) windows_.push_back({size_, chunks_.size()});
      chunks_.push_back({size_, starts[chunk]});
      size_ += chunks[chunk];
    }
    for (size_t w = 0; w < windows_.size(); ++w) {
      const uint64_t end = w + 1 < windows_.size() ? windows_[w + 1].position : size_;
      mixed_.emplace_back(end - windows_[w].position, options.seed,
                          mix_bits(epoch * 0x9e3779b97f4a7c15ULL + w + 1));
    }
  }
  uint64_t size() const override { return size_; }
  uint64_t at(uint64_t position) const override {
    const auto before = [](uint64_t at, const auto& entry) { return at < entry.position; };
    const auto window = std::upper_bound(windows_.begin(), windows_.end(), position, before) - 1;
    const Permutation& mixed = mixed_[static_cast<size_t>(window - windows_.begin())];
    const uint64_t place = window->position + mixed.at(position - window->position);
    const auto chunk = std::upper_bound(chunks_.begin(), chunks_.end(), place, before) - 1;
    return chunk->sample + (place - chunk->position);
  }

 private:
  struct Window {
    uint64_t position;
    size_t chunk;
  };
  struct Chunk {
    uint64_t position;  // in the epoch, before mixing
    uint64_t sample;    // its first
  };
  uint64_t size_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<Window> windows_;
  std::vector<Permutation> mixed_;
};

}  // namespace

// Numbers as (row, column) pairs that are stirred in turn: each round is undone by subtracting, so
// different numbers stay different. What lands outside [0, size) is stirred again.
Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t stream)
    : size_(size), key_(mix_bits(mix_bits(seed + 0x9e3779b97f4a7c15ULL) ^ mix_bits(~stream))) {
  rows_ = std::max<uint64_t>(1, static_cast<uint64_t>(std::sqrt(static_cast<double>(size))));
  columns_ = (size + rows_ - 1) / rows_;
}

uint64_t Permutation::at(uint64_t position) const {
  require(position < size_, "a position outside the permutation");
  uint64_t x = position;
  do {
    uint64_t row = x / columns_;
    uint64_t column = x % columns_;
    for (uint64_t round = 0; round < kRounds; ++round) {
      row = wrapped(row + below(rows_, key_ + round * 0x9e3779b97f4a7c15ULL + column), rows_);
      column =
          wrapped(column + below(columns_, ~key_ + round * 0xd1b54a32d192ed03ULL + row), columns_);
    }
    x = row * columns_ + column;
  } while (x >= size_);
  return x;
}

std::unique_ptr<EpochOrder> make_epoch_order(uint64_t size, std::span<const uint64_t> chunks,
                                             uint64_t epoch, const OrderOptions& options) {
  if (chunks.empty() || !options.shuffles)
    return std::make_unique<PlainOrder>(size, options.seed, epoch, options.shuffles);
  auto order = std::make_unique<ChunkedOrder>(chunks, epoch, options);
  require(order->size() == size, "the chunks do not add up to the size of the data set");
  return order;
}

Range cut(uint64_t count, uint64_t parts, uint64_t part) {
  const uint64_t each = count / parts;
  const uint64_t longer = count % parts;
  const uint64_t first = part * each + std::min(part, longer);
  return {first, first + each + (part < longer ? 1 : 0)};
}

uint64_t BatchPart::count() const {
  uint64_t sum = 0;
  for (const Range& shard : shards) sum += shard.size();
  return sum;
}

uint64_t batches_in_epoch(const BatchOptions& options) {
  require(options.batch > 0, "batch size: must be at least 1");
  const uint64_t whole = options.samples / options.batch;
  const uint64_t rest = options.samples % options.batch;
  if (options.drops_remainder || rest == 0) return whole;
  return whole + (rest >= options.smallest || whole == 0 ? 1 : 0);
}

BatchPart plan_batch(const Position& position, const BatchOptions& options, int rank, int ranks) {
  const uint64_t batches = batches_in_epoch(options);
  const uint64_t usable = options.drops_remainder ? batches * options.batch : options.samples;
  if (usable == 0)
    throw UsageError(fmt::format("a batch of {} from {} samples: there is no complete batch",
                                 options.batch, options.samples));
  const auto parts = options.shards == 0 ? static_cast<uint64_t>(ranks) : options.shards;
  if (parts < static_cast<uint64_t>(ranks))
    throw UsageError(
        fmt::format("{} ranks for {} logical shards: raise --logical_shards, or "
                    "start at most {} ranks",
                    ranks, parts, parts));
  Position at = position;
  if (at.next >= usable) at = {at.epoch + 1, 0};
  BatchPart part;
  part.epoch = at.epoch;
  part.global = {at.next, at.next + std::min(options.batch, usable - at.next)};
  if (usable - part.global.last < options.smallest) part.global.last = usable;
  const uint64_t used = options.smallest <= 1
                            ? parts
                            : std::clamp<uint64_t>(part.global.size() / options.smallest, 1, parts);
  const Range mine = cut(parts, static_cast<uint64_t>(ranks), static_cast<uint64_t>(rank));
  for (uint64_t shard = mine.first; shard < mine.last; ++shard) {
    const Range range = shard < used ? cut(part.global.size(), used, shard) : Range{};

    part.shards.push_back({part.global.first + range.first, part.global.first + range.last});
  }
  part.after = {at.epoch, part.global.last};
  if (part.after.next >= usable) part.after = {at.epoch + 1, 0};
  return part;
}

SplitMethod parse_split_method(const std::string& name) {
  static const Registry<SplitMethod> kWays = [] {
    Registry<SplitMethod> all("split method");
    all.add("global", SplitMethod::kGlobal);
    all.add("split_steps", SplitMethod::kSplitSteps);
    all.add("split_epochs", SplitMethod::kSplitEpochs);
    all.add("fixed_shard", SplitMethod::kFixedShard);
    return all;
  }();
  return kWays.find(name);
}

std::vector<std::string> split_method_names() {
  return {"global", "split_steps", "split_epochs", "fixed_shard"};
}

std::vector<uint64_t> samples_of_rank(SplitMethod way, const BatchOptions& options, uint64_t epoch,
                                      uint64_t seed, int rank, int ranks) {
  const auto n = static_cast<uint64_t>(ranks);
  const auto me = static_cast<uint64_t>(rank);
  const uint64_t batch_of_rank = std::max<uint64_t>(1, options.batch / n);
  std::vector<uint64_t> samples;
  const auto take = [&](const Permutation& order, uint64_t count, auto number) {
    for (uint64_t i = 0; i < count; ++i) samples.push_back(number(order.at(i)));
  };
  const auto same = [](uint64_t i) { return i; };
  switch (way) {
    case SplitMethod::kGlobal: {
      const Permutation order(options.samples, seed, epoch);
      Position at{epoch, 0};
      while (at.epoch == epoch) {
        const BatchPart part = plan_batch(at, options, rank, ranks);
        for (const Range& shard : part.shards)
          for (uint64_t i = shard.first; i < shard.last; ++i) samples.push_back(order.at(i));
        at = part.after;
      }
      break;
    }
    case SplitMethod::kSplitSteps:  // everything in an order of its own, 1/n of the batches
      take(Permutation(options.samples, seed + kRankStream * (me + 1), epoch),
           options.samples / batch_of_rank / n * batch_of_rank, same);
      break;
    case SplitMethod::kSplitEpochs:  // everything in an order of its own, in fewer epochs
      take(Permutation(options.samples, seed + kRankStream * (me + 1), epoch), options.samples,
           same);
      break;
    case SplitMethod::kFixedShard: {  // every n-th sample, always the same ones
      const uint64_t owned = (options.samples + n - 1 - me) / n;
      take(Permutation(owned, seed + kRankStream * (me + 1), epoch),
           owned / batch_of_rank * batch_of_rank, [&](uint64_t i) { return i * n + me; });
      break;
    }
  }
  return samples;
}

}  // namespace horon
