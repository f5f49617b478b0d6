// How a lane moves bytes: alone, in buckets, encoded.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/device/copy.h"
#include "horon/runtime/lane.h"

namespace horon {

Lane::Item Lane::take(const std::string& name) {
  const auto found = pending_.find(name);
  Item item = std::move(found->second);
  pending_.erase(found);
  if (item.bucket >= 0) {
    ++missing_[static_cast<size_t>(item.bucket)];
  } else {
    --unplanned_;
  }
  running_.emplace(item.spec.name, item.submitted);
  return item;
}

void Lane::put_back(std::vector<Item> items) {
  running_.clear();
  for (Item& item : items) {
    count(item);
    const std::string name = item.spec.name;
    pending_.emplace(name, std::move(item));
  }
}

BufferView Lane::memory_of(int bucket) {
  const Bucket& planned = plan_.buckets()[static_cast<size_t>(bucket)];
  if (planned.home >= 0) {
    const BufferView home = declared_memory_[static_cast<size_t>(planned.home)].view();
    return home.slice(planned.home_offset, planned.count);
  }
  Memory& memory = memory_[bucket];
  const TensorSpec& first = plan_.tensor(planned.tensors.front());
  if (memory.key != planned.key)
    memory = {mover_.allocate(planned.count, first.dtype, first.device), planned.key};
  return memory.buffer.view();
}

// The bytes of all items in a row: where they already lie so, or copied into the bucket's memory.
// `copied`: results have to be brought from there.
BufferView Lane::pack(const std::vector<Item>& items, int bucket, bool& copied) {
  const Bucket& planned = plan_.buckets()[static_cast<size_t>(bucket)];
  // Only the bucket's own memory counts as "in place": between tensors that merely happen to lie at
  // these distances there is memory of somebody else.
  const BufferView whole = memory_of(bucket);
  std::vector<CopyJob> jobs;
  copied = false;
  for (size_t i = 0; i < items.size(); ++i) {
    const BufferView& in = items[i].request.in;
    void* place = whole.slice(planned.offsets[i], in.count).data;
    if (in.data != place) jobs.push_back({place, in.data, in.bytes()});
    const bool leaves = items[i].request.out.data != place;
    copied = copied || leaves;
    counters_.bytes_copied += (in.data != place ? in.bytes() : 0) + (leaves ? in.bytes() : 0);
  }
  if (!jobs.empty())
    copy_all(jobs, static_cast<int>(usable_cores().size()), whole.device, comm_->device());
  return whole;
}

void Lane::unpack(const std::vector<Item>& items, const Bucket& planned, const BufferView& whole) {
  std::vector<CopyJob> jobs;
  for (size_t i = 0; i < items.size(); ++i) {
    const BufferView& out = items[i].request.out;
    void* place = whole.slice(planned.offsets[i], out.count).data;
    if (out.data != place) jobs.push_back({out.data, place, out.bytes()});
  }
  copy_all(jobs, static_cast<int>(usable_cores().size()), whole.device, comm_->device());
}

// Without the lock.
bool Lane::move_items(std::vector<Item>& items, const Bucket& planned, const BufferView& whole,
                      bool may_deviate) {
  const TensorSpec& spec = items.front().spec;
  Request request = items.front().request;
  request.name = spec.name;
  std::vector<Segment> segments;
  const bool encodes = !spec.codec.empty();
  if (items.size() == 1) {
    if (encodes) segments.push_back({spec.name, 0, request.in.count, items.front().step});
  } else {
    request.in = request.out = whole;
    request.name = fmt::format("{} and {} more", spec.name, items.size() - 1);
    for (size_t i = 0; i < items.size() && encodes; ++i)
      segments.push_back(
          {items[i].spec.name, planned.offsets[i], items[i].spec.count, items[i].step});
  }
  return mover_.move(std::move(request), spec, std::move(segments), may_deviate);
}

// Until what they read is there.
void Lane::await(Lock& lock, const std::vector<Item>& items) {
  if (std::none_of(items.begin(), items.end(),
                   [](const Item& item) { return item.request.ready != nullptr; }))
    return;
  lock.unlock();
  for (const Item& item : items)
    if (item.request.ready) item.request.ready();
  lock.lock();
}

bool Lane::run_items(Lock& lock, std::vector<Item> items, int bucket, bool may_deviate) {
  bool copied = false;
  Bucket planned;
  BufferView whole = items.front().request.in;
  std::exception_ptr error;
  bool done = true;
  int64_t begun = trace_now();
  try {
    await(lock, items);
    if (items.size() > 1) {
      planned = plan_.buckets()[static_cast<size_t>(bucket)];
      whole = pack(items, bucket, copied);
      begun = trace_now();
    }
    lock.unlock();
    done = move_items(items, planned, whole, may_deviate);
    if (done && copied) unpack(items, planned, whole);
    for (const Item& item : items)
      if (done && item.request.done) item.request.done();
  } catch (const UsageError&) {
    error = std::current_exception();
  } catch (...) {  // they are ours already: whoever waits for them must learn of it
    if (!lock.owns_lock()) lock.lock();
    trace(items, whole.bytes(), begun, true);
    finish(items, std::current_exception());
    throw;
  }
  if (!lock.owns_lock()) lock.lock();
  if (!done) {
    put_back(std::move(items));
    return false;
  }
  ++counters_.collectives;
  counters_.bytes += whole.bytes();
  note_waits();
  trace(items, whole.bytes(), begun, error != nullptr);
  finish(items, error);
  return true;
}

void Lane::trace(const std::vector<Item>& items, uint64_t bytes, int64_t begun, bool failed) const {
  if (!options_.recorder) return;
  TraceEvent event;
  const TensorSpec& spec = items.front().spec;
  event.set_name(spec.name);
  event.kind = spec.kind;
  event.lane = options_.number;
  event.failed = failed;
  event.tensors = static_cast<uint32_t>(items.size());
  event.bytes = bytes;
  event.submitted_ns = trace_time(items.front().submitted);
  event.begun_ns = begun;
  event.ended_ns = trace_now();
  options_.recorder->record(event);
}

// The rank that was away longest since the last operation is the one that the others waited for.
// Every rank sees the same numbers; rank 0 speaks for all.
void Lane::note_waits() {
  if (comm_->size() < 2) return;
  const std::vector<uint64_t> away = comm_->away_us();
  const std::vector<int>& members = comm_->members();
  if (away_us_.size() == away.size()) {
    const auto since = [&](size_t i) { return away[i] - std::min(away[i], away_us_[i]); };
    size_t slowest = 0;
    for (size_t i = 1; i < away.size(); ++i) slowest = since(i) > since(slowest) ? i : slowest;
    const uint64_t mine = since(static_cast<size_t>(comm_->rank()));
    counters_.waited_us.resize(static_cast<size_t>(comm_->topology().size));
    counters_.waited_us[static_cast<size_t>(members[slowest])] += since(slowest) - mine;
  }
  if (comm_->rank() == 0 && options_.warn) {
    const std::string line = stragglers_.add(away, members);
    if (!line.empty()) options_.warn(line);
  }
  away_us_ = away;
}

void Lane::finish(std::vector<Item>& items, const std::exception_ptr& error) {
  running_.clear();
  last_finished_ = items.back().spec.name;
  last_finished_at_ = Clock::now();
  for (const Item& item : items) {
    if (!error) ++counters_.operations;
    if (!error && !is_ours(item.spec) && options_.on_other_class)
      options_.on_other_class(item.spec);
    item.work.finish(error);
  }
}

// Nothing works any more: everybody who waits learns why.
void Lane::fail_all(const std::exception_ptr& error) {
  dead_ = error;
  for (const auto& [name, item] : pending_) item.work.finish(error);
  pending_.clear();
  count_all();
}

}  // namespace horon
