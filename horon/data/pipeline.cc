#include "horon/data/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/base/time.h"

namespace horon {
namespace {

constexpr uint64_t kTake = 32;  // samples that a thread takes at a time, at most

DType dtype_of_pixels(PixelType type) {
  switch (type) {
    case PixelType::kF32:
      return DType::kF32;
    case PixelType::kF16:
      return DType::kF16;
    case PixelType::kBF16:
      return DType::kBF16;
    case PixelType::kU8:
      return DType::kU8;
  }
  return DType::kF32;
}

// A batch that is being made, is ready, or is with the caller.
struct Slot {
  OwnedBuffer host;
  OwnedBuffer device;  // empty: none
  uint64_t epoch = 0;
  BatchPart part;
  std::shared_ptr<const EpochOrder> order;
  std::vector<uint64_t> positions;
  std::vector<uint64_t> samples;
  std::vector<int64_t> labels;
  std::vector<uint8_t> is_bad;
  uint64_t taken = 0;
  uint64_t done = 0;
  bool is_ready() const { return done == positions.size() && is_moved; }
  bool is_moved = false;  // put together, and on the device
};

}  // namespace

struct Pipeline::State {
  PipelineOptions options;
  BatchOptions batching;
  std::vector<uint64_t> chunks;
  uint64_t sample_bytes = 0;
  uint64_t largest = 0;  // samples of this rank in a whole batch

  mutable std::mutex mutex;                // guards all below
  std::condition_variable work;            // for threads: a slot to fill, or the end
  std::condition_variable ready;           // for next(), and for threads that wait for free slots
  std::deque<std::shared_ptr<Slot>> line;  // planned, in order
  std::vector<std::shared_ptr<Slot>> free;
  Position planned;
  std::shared_ptr<const EpochOrder> order;
  uint64_t order_epoch = UINT64_MAX;
  bool ended = false;  // nothing more to plan
  bool stops = false;
  std::exception_ptr error;
  Report report;
  std::set<uint64_t> bad_samples;
  uint64_t with_caller = 0;  // batches

  void plan_more();
  void run();
  void fill(Slot& slot, uint64_t first, uint64_t last, Augmenter& augmenter,
            std::vector<uint8_t>& scratch);
  void note_bad(uint64_t sample, const std::string& reason);
  void count_bad(const std::string& reason);
  void note_memory();
  uint64_t slot_bytes() const { return largest * sample_bytes * (options.device ? 2 : 1); }
  void close(Slot& slot) const;
};

// With the lock: every free slot gets the next batch.
void Pipeline::State::plan_more() {
  while (!free.empty() && !ended && !stops) {
    BatchPart part = plan_batch(planned, batching, options.rank, options.ranks);
    if (options.epochs != 0 && part.epoch >= options.epochs) {
      ended = true;
      break;
    }
    if (order_epoch != part.epoch) {
      order = make_epoch_order(batching.samples, chunks, part.epoch, options.order);
      order_epoch = part.epoch;
    }
    auto slot = free.back();
    free.pop_back();
    slot->epoch = part.epoch;
    slot->part = std::move(part);
    slot->order = order;
    slot->positions.clear();
    for (const Range& shard : slot->part.shards)
      for (uint64_t i = shard.first; i < shard.last; ++i) slot->positions.push_back(i);
    slot->samples.assign(slot->positions.size(), 0);
    slot->labels.assign(slot->positions.size(), 0);
    slot->is_bad.assign(slot->positions.size(), 0);
    slot->taken = slot->done = 0;
    slot->is_moved = slot->positions.empty();
    planned = slot->part.after;
    line.push_back(std::move(slot));
  }
  work.notify_all();
}

// A sample counts once, however many epochs meet it.
void Pipeline::State::note_bad(uint64_t sample, const std::string& reason) {
  const std::lock_guard lock(mutex);
  if (!bad_samples.insert(sample).second) return;
  count_bad(reason);
}

// With the lock.
void Pipeline::State::count_bad(const std::string& reason) {
  ++report.corrupt;
  if (report.reasons.size() < 10) report.reasons.push_back(reason);
  if (report.corrupt > options.max_corrupt_records && !error) {
    const std::string limit = options.max_corrupt_records == 0
                                  ? "--max_corrupt_records N allows N of them"
                                  : fmt::format("more than the {} bad records that are allowed",
                                                options.max_corrupt_records);
    error = std::make_exception_ptr(CorruptRecord(reason, limit));
  }
}

// With the lock: the batches in which something is, now.
void Pipeline::State::note_memory() {
  const auto begun = static_cast<uint64_t>(
      std::count_if(line.begin(), line.end(), [](const auto& one) { return one->taken > 0; }));
  report.memory.peak = std::max(report.memory.peak, (begun + with_caller) * slot_bytes());
}

void Pipeline::State::fill(Slot& slot, uint64_t first, uint64_t last, Augmenter& augmenter,
                           std::vector<uint8_t>& scratch) {
  auto* out = static_cast<char*>(slot.host.view().data);
  uint64_t next = slot.order->at(slot.positions[first]);
  for (uint64_t i = first; i < last; ++i) {
    const uint64_t sample = next;
    slot.samples[i] = sample;
    if (i + 1 < last) options.dataset->expect(next = slot.order->at(slot.positions[i + 1]));
    std::string reason;
    try {
      const Record record = options.dataset->read(sample, scratch);
      slot.labels[i] = record.label;
      augmenter.apply(record, slot.epoch, sample, out + i * sample_bytes);
      continue;
    } catch (const CorruptRecord& bad) {
      reason = bad.what();
    } catch (const IoError&) {
      throw;
    } catch (const Error& bad) {
      if (bad.exit_code() != ExitCode::kData) throw;
      reason = fmt::format("{}: {}", options.dataset->where(sample), bad.what());
    }
    slot.is_bad[i] = 1;
    note_bad(sample, reason);
  }
}

// Bad samples leave no holes; then to the device. Without the lock, by the last of its threads.
void Pipeline::State::close(Slot& slot) const {
  const auto bad = static_cast<uint64_t>(std::count(slot.is_bad.begin(), slot.is_bad.end(), 1));
  if (bad > 0) {
    auto* out = static_cast<char*>(slot.host.view().data);
    uint64_t to = 0;
    for (uint64_t i = 0; i < slot.samples.size(); ++i) {
      if (slot.is_bad[i] != 0) continue;
      if (to != i) std::memmove(out + to * sample_bytes, out + i * sample_bytes, sample_bytes);
      slot.samples[to] = slot.samples[i];
      slot.labels[to++] = slot.labels[i];
    }
    slot.samples.resize(to);
    slot.labels.resize(to);
  }
  if (!options.device || slot.samples.empty()) return;
  const auto stream = options.device->make_stream(options.device_index);
  stream->copy(slot.device.view().data, slot.host.view().data, slot.samples.size() * sample_bytes);
  stream->synchronize();
}

void Pipeline::State::run() {
  Augmenter augmenter(options.recipe, options.form, options.order.seed);  // checked by the maker
  std::vector<uint8_t> scratch;
  uint64_t counted = 0;  // of this thread's memory
  std::unique_lock lock(mutex);
  while (true) {
    std::shared_ptr<Slot> slot;
    work.wait(lock, [&] {
      const auto open = std::find_if(line.begin(), line.end(), [](const auto& one) {
        return one->taken < one->positions.size();
      });
      slot = open == line.end() ? nullptr : *open;
      return stops || error || slot;
    });
    if (stops || error) return;
    const uint64_t first = slot->taken;
    // Few at a time where a batch is small: its end should not wait for one thread.
    const uint64_t few = slot->positions.size() / (4 * static_cast<uint64_t>(options.threads));
    const uint64_t last =
        std::min<uint64_t>(first + std::clamp<uint64_t>(few, 1, kTake), slot->positions.size());
    slot->taken = last;
    note_memory();
    lock.unlock();
    std::exception_ptr failed;
    try {
      fill(*slot, first, last, augmenter, scratch);
    } catch (...) {
      failed = std::current_exception();
    }
    const uint64_t own = std::max(counted, scratch.capacity() + augmenter.memory_bytes());
    lock.lock();
    report.memory.threads += own - counted;
    counted = own;
    slot->done += last - first;
    if (slot->done == slot->positions.size() && !failed && !error) {
      lock.unlock();
      try {
        close(*slot);
      } catch (...) {
        failed = std::current_exception();
      }
      lock.lock();
      slot->is_moved = true;
    }
    if (failed && !error) error = failed;
    if (error) work.notify_all();
    if (error || slot->is_ready()) ready.notify_all();
  }
}

Pipeline::Pipeline(const PipelineOptions& options) : state_(std::make_shared<State>()) {
  State& state = *state_;
  require(options.dataset != nullptr, "a pipeline without a data set");
  const Augmenter checked(options.recipe, options.form, options.order.seed);
  require(options.threads >= 1 && options.prefetch >= 1,
          "threads and prefetched batches: at least 1");
  state.options = options;
  state.batching = {options.dataset->size(), options.batch, options.shards, options.drops_remainder,
                    options.smallest};
  state.chunks = options.dataset->chunks();
  state.planned = options.start;
  state.sample_bytes = bytes_of_sample(options.recipe, options.form);
  BatchOptions most = state.batching;  // of the longest batch; rank 0 has the largest part
  most.batch += options.smallest - std::min<uint64_t>(options.smallest, 1);
  most.drops_remainder = false;
  plan_batch({}, state.batching, 0, options.ranks);  // reports invalid options now
  state.largest = plan_batch({}, most, 0, options.ranks).count();
  const DType dtype = dtype_of_pixels(options.form.type);
  const uint64_t elements = state.largest * state.sample_bytes / size_of(dtype);
  for (int i = 0; i < options.prefetch; ++i) {
    auto slot = std::make_shared<Slot>();
    slot->host = options.device ? options.device->allocate_pinned(elements, dtype)
                                : OwnedBuffer::host(elements, dtype);
    if (options.device)
      slot->device = options.device->allocate(elements, dtype, options.device_index);
    state.free.push_back(std::move(slot));
  }
  threads_.reserve(static_cast<size_t>(options.threads));
  {
    const std::lock_guard lock(state.mutex);
    const std::vector<std::string> losses = options.dataset->losses();
    state.report.lost = losses.size();
    for (const std::string& one : losses) state.count_bad(one);
    if (state.error) std::rethrow_exception(state.error);
    state.plan_more();
  }
  try {
    for (int i = 0; i < options.threads; ++i)
      threads_.push_back(start_thread(fmt::format("hrn-input-{}", i),
                                      [at = state_](const std::stop_token&) { at->run(); }));
  } catch (...) {  // those that were started must not wait for ever
    stop();
    throw;
  }
}

Pipeline::~Pipeline() { stop(); }

void Pipeline::stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stops = true;
  }
  state_->work.notify_all();
  state_->ready.notify_all();
}

std::optional<Batch> Pipeline::next() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const Stopwatch watch;
  state.ready.wait(lock, [&] {
    const bool front = !state.line.empty() && state.line.front()->is_ready();
    return front || state.error || state.line.empty();
  });
  state.report.waited_seconds += watch.seconds();
  if (state.line.empty() || !state.line.front()->is_ready()) {
    if (state.error) std::rethrow_exception(state.error);
    require(state.ended, "all batches are held by the caller: release one, or raise `prefetch`");
    return std::nullopt;
  }
  const std::shared_ptr<Slot> slot = state.line.front();
  state.line.pop_front();
  ++state.with_caller;
  state.report.samples += slot->samples.size();
  Batch batch;
  const BufferView& memory = state.options.device ? slot->device.view() : slot->host.view();
  batch.pixels = memory.slice(0, slot->samples.size() * state.sample_bytes / size_of(memory.dtype));
  batch.labels = slot->labels;
  batch.samples = slot->samples;
  uint64_t at = 0;
  for (const Range& shard : slot->part.shards) {
    const auto first = slot->is_bad.begin() + static_cast<ptrdiff_t>(at);
    batch.shard_sizes.push_back(
        shard.size() -
        static_cast<uint64_t>(std::count(first, first + static_cast<ptrdiff_t>(shard.size()), 1)));
    at += shard.size();
  }
  batch.global_count = slot->part.global.size();
  batch.epoch = slot->epoch;
  batch.after = slot->part.after;
  // The memory is returned when the batch is destroyed, on any thread; the pipeline may be
  // destroyed by then.
  const std::weak_ptr<State> back = state_;
  batch.holds = std::shared_ptr<void>(slot.get(), [back, slot](void*) {
    if (const auto alive = back.lock()) {
      const std::lock_guard again(alive->mutex);
      --alive->with_caller;
      alive->free.push_back(slot);
      alive->plan_more();
      alive->ready.notify_all();
    }
  });
  return batch;
}

Pipeline::Report Pipeline::report() const {
  const uint64_t of_dataset = state_->options.dataset->memory_bytes();
  const std::lock_guard lock(state_->mutex);
  Report report = state_->report;
  report.corrupt_samples.assign(state_->bad_samples.begin(), state_->bad_samples.end());
  report.memory.cap = memory_bytes();
  report.memory.dataset = of_dataset;
  return report;
}

uint64_t Pipeline::memory_bytes() const {
  return static_cast<uint64_t>(state_->options.prefetch) * state_->slot_bytes();
}

}  // namespace horon
