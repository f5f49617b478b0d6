// How a lane moves bytes: alone, in buckets, encoded.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/runtime/lane.h"
#include "horon/runtime/scale.h"

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
  running_.emplace_back(item.spec.name, item.submitted);
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

const OwnedBuffer& Lane::memory_of(int bucket) {
  Memory& memory = memory_[bucket];
  const Bucket& planned = plan_.buckets()[static_cast<size_t>(bucket)];
  const DType dtype = plan_.tensor(planned.tensors.front()).dtype;
  if (memory.key != planned.key) memory = {comm_->allocate(planned.count, dtype), planned.key};
  return memory.buffer;
}

// The bytes of all items in a row: where they already lie so, or copied into the bucket's memory.
BufferView Lane::pack(std::vector<Item>& items, int bucket, bool& copied) {
  copied = false;
  if (items.size() == 1) return items.front().request.in;
  const Bucket& planned = plan_.buckets()[static_cast<size_t>(bucket)];
  const size_t element = size_of(items.front().spec.dtype);
  // Only the bucket's own memory counts as "in place": between tensors that merely happen to lie at
  // these distances there is memory of somebody else.
  const BufferView whole = memory_of(bucket).view();
  std::vector<CopyJob> jobs;
  for (size_t i = 0; i < items.size(); ++i) {
    const BufferView& in = items[i].request.in;
    char* place = static_cast<char*>(whole.data) + planned.offsets[i] * element;
    if (in.data != place) jobs.push_back({place, in.data, in.bytes()});
  }
  if (jobs.empty()) return whole;
  for (const CopyJob& job : jobs) counters_.bytes_copied += 2 * job.bytes;
  copy_all(jobs, static_cast<int>(usable_cores().size()));
  copied = true;
  return whole;
}

bool Lane::run_bucket(Lock& lock, std::vector<Item> items, int bucket, bool may_deviate) {
  const TensorSpec& spec = items.front().spec;
  if (items.size() == 1 && !may_deviate) {
    run_single(lock, std::move(items.front()));
    return true;
  }
  const Bucket planned = plan_.buckets()[static_cast<size_t>(bucket)];
  bool copied = false;
  const BufferView whole = pack(items, bucket, copied);
  const int64_t begun = trace_now();
  lock.unlock();
  std::exception_ptr error;
  bool done = true;
  try {
    Request request = items.front().request;
    request.name = spec.name;
    if (items.size() > 1) {
      request.in = request.out = whole;
      request.name = fmt::format("{} and {} more", spec.name, items.size() - 1);
    }
    const bool prepares = spec.prescale != 1.0 || !spec.codec.empty();
    if (!prepares) {
      done = may_deviate ? comm_->run_unless_deviated(request) : (comm_->run(request), true);
    } else if (may_deviate && !comm_->run_unless_deviated(Request::barrier(
                                  {.name = request.name, .timeout = options_.timeout}))) {
      done = false;  // found out before anything was changed
    } else {
      scale(request.in, spec.prescale);
      move(request, spec);
    }
    if (done) scale(request.out, spec.postscale);
    if (done && copied) {
      std::vector<CopyJob> jobs;
      const size_t element = size_of(spec.dtype);
      for (size_t i = 0; i < items.size(); ++i)
        jobs.push_back({items[i].request.out.data,
                        static_cast<char*>(whole.data) + planned.offsets[i] * element,
                        items[i].request.out.bytes()});
      copy_all(jobs, static_cast<int>(usable_cores().size()));
    }
  } catch (const UsageError&) {
    error = std::current_exception();
  } catch (...) {
    lock.lock();
    trace(items, whole.bytes(), begun, true);
    finish(items, std::current_exception());
    throw;
  }
  lock.lock();
  if (!done) {
    put_back(std::move(items));
    return false;
  }
  ++counters_.collectives;
  counters_.bytes += whole.bytes();
  look_for_stragglers();
  trace(items, whole.bytes(), begun, error != nullptr);
  finish(items, error);
  return true;
}

void Lane::run_single(Lock& lock, Item item) {
  std::vector<Item> items;
  items.push_back(std::move(item));
  const TensorSpec& spec = items.front().spec;
  Request& request = items.front().request;
  request.name = spec.name;
  const int64_t begun = trace_now();
  lock.unlock();
  std::exception_ptr error;
  try {
    scale(request.in, spec.prescale);
    move(request, spec);
    scale(request.out, spec.postscale);
  } catch (const UsageError&) {
    error = std::current_exception();
  } catch (...) {
    lock.lock();
    trace(items, request.in.bytes(), begun, true);
    finish(items, std::current_exception());
    throw;
  }
  lock.lock();
  ++counters_.collectives;
  counters_.bytes += request.in.bytes();
  trace(items, request.in.bytes(), begun, error != nullptr);
  finish(items, error);
}

void Lane::move(const Request& request, const TensorSpec& spec) {
  if (spec.codec.empty()) return comm_->run(request);
  move_encoded(request, spec);
}

// Dense encodings are summed by the collective; sparse ones are gathered and added here.
void Lane::move_encoded(const Request& request, const TensorSpec& spec) {
  auto& codec = codecs_[spec.codec];
  if (!codec) codec = make_codec(spec.codec);
  const std::span<float> numbers(static_cast<float*>(request.in.data), request.in.count);
  Encoded encoded;
  const std::string tensor = fmt::format("{}[{}]", spec.name, numbers.size());
  codec->encode(tensor, numbers, encoded);
  const OpOptions options{.name = request.name, .timeout = options_.timeout};
  if (codec->is_dense()) {
    OwnedBuffer& wire = wire_[tensor + spec.codec];
    if (wire.view().count != numbers.size())
      wire = comm_->allocate(numbers.size(), codec->wire_dtype());
    std::copy(encoded.bytes.begin(), encoded.bytes.end(),
              static_cast<std::byte*>(wire.view().data));
    comm_->all_reduce(wire.view(), {request.op, request.reduction, options.name, options.timeout});
    codec->decode({static_cast<const std::byte*>(wire.view().data), wire.view().bytes()}, numbers);
    return;
  }
  const Gathered all = comm_->all_gather(
      BufferView{encoded.bytes.data(), encoded.bytes.size(), DType::kU8, {}}, options);
  std::fill(numbers.begin(), numbers.end(), 0.0F);
  const auto* at = static_cast<const std::byte*>(all.data.view().data);
  int contributors = 0;
  for (const uint64_t bytes : all.counts) {
    if (bytes > 0) codec->decode_add({at, bytes}, numbers);
    contributors += bytes > 0 ? 1 : 0;
    at += bytes;
  }
  if (request.op == ReduceOp::kAverage) scale(request.in, 1.0 / std::max(contributors, 1));
}

void Lane::trace(const std::vector<Item>& items, uint64_t bytes, int64_t begun, bool failed) const {
  if (!options_.recorder) return;
  TraceEvent event;
  const TensorSpec& spec = items.front().spec;
  std::copy_n(spec.name.data(), std::min(spec.name.size(), sizeof(event.name) - 1), event.name);
  event.kind = spec.kind;
  event.lane = options_.number;
  event.failed = failed;
  event.tensors = static_cast<uint32_t>(items.size());
  event.bytes = bytes;
  event.submitted_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                           items.front().submitted.time_since_epoch())
                           .count();
  event.begun_ns = begun;
  event.ended_ns = trace_now();
  options_.recorder->record(event);
}

// Rank 0 speaks for all: every rank sees the same numbers.
void Lane::look_for_stragglers() {
  if (comm_->rank() != 0 || comm_->size() < 2 || !options_.warn) return;
  const std::string line = stragglers_.add(comm_->away_us(), comm_->members());
  if (!line.empty()) options_.warn(line);
}

void Lane::finish(std::vector<Item>& items, std::exception_ptr error) {
  running_.clear();
  last_finished_ = items.back().spec.name;
  last_finished_at_ = Clock::now();
  for (const Item& item : items) {
    if (!error) ++counters_.operations;
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
