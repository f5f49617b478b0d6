// How a lane moves bytes: alone, in buckets, encoded.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/device/copy.h"
#include "horon/device/mirror.h"
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

// Where peers reach it, or on the device of the tensors.
OwnedBuffer Lane::allocate(uint64_t count, const TensorSpec& like) {
  if (like.device.is_cpu()) return comm_->allocate(count, like.dtype);
  require(comm_->device() != nullptr, "buckets on a device need its part; see `horon info`");
  return comm_->device()->allocate(count, like.dtype, like.device.index);
}

const OwnedBuffer& Lane::memory_of(int bucket) {
  Memory& memory = memory_[bucket];
  const Bucket& planned = plan_.buckets()[static_cast<size_t>(bucket)];
  if (memory.key != planned.key)
    memory = {allocate(planned.count, plan_.tensor(planned.tensors.front())), planned.key};
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
  copy_all(jobs, static_cast<int>(usable_cores().size()), whole.device, comm_->device());
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
  BufferView whole;
  try {
    whole = pack(items, bucket, copied);
  } catch (...) {  // they are ours already: whoever waits for them must learn of it
    finish(items, std::current_exception());
    throw;
  }
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
      done = move_plain(request, may_deviate);
    } else if (may_deviate && !comm_->run_unless_deviated(Request::barrier(
                                  {.name = request.name, .timeout = options_.timeout}))) {
      done = false;  // found out before anything was changed
    } else {
      scale(request.in, spec.prescale, comm_->device());
      move(request, spec);
    }
    if (done) scale(request.out, spec.postscale, comm_->device());
    if (done && copied) {
      std::vector<CopyJob> jobs;
      const size_t element = size_of(spec.dtype);
      for (size_t i = 0; i < items.size(); ++i)
        jobs.push_back({items[i].request.out.data,
                        static_cast<char*>(whole.data) + planned.offsets[i] * element,
                        items[i].request.out.bytes()});
      copy_all(jobs, static_cast<int>(usable_cores().size()), whole.device, comm_->device());
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
  note_waits();
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
    scale(request.in, spec.prescale, comm_->device());
    move(request, spec);
    scale(request.out, spec.postscale, comm_->device());
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

// In pieces if it is large, so that what is urgent need not wait for the whole. How it is cut is a
// matter of its size alone, the same on all ranks.
bool Lane::move_plain(const Request& request, bool may_deviate) {
  const bool one_array =
      (request.kind == OpKind::kAllReduce || request.kind == OpKind::kBroadcast) &&
      request.exact == nullptr && request.in.data == request.out.data;
  const uint64_t pieces =
      options_.urgent || !one_array || options_.chunk_bytes == 0
          ? 1
          : std::max<uint64_t>(1, (request.in.bytes() - 1) / options_.chunk_bytes + 1);
  const auto run = [&](const Request& piece) {
    if (may_deviate) return comm_->run_unless_deviated(piece);
    comm_->run(piece);
    return true;
  };
  if (pieces == 1 || request.in.count == 0) return run(request);
  const uint64_t share = (request.in.count / pieces + 64) / 64 * 64;
  for (uint64_t first = 0; first < request.in.count; first += share) {
    Request piece = request;
    piece.in = piece.out = request.in.slice(first, std::min(share, request.in.count - first));
    if (!run(piece)) return false;  // the first one only: the others follow from it
    may_deviate = false;
    if (options_.gate) options_.gate->make_way();
  }
  return true;
}

void Lane::move(const Request& request, const TensorSpec& spec) {
  if (spec.codec.empty()) {
    move_plain(request, false);
  } else {
    move_encoded(request, spec);
  }
}

// Dense encodings are summed by the collective; sparse ones are gathered and added here.
void Lane::move_encoded(const Request& request, const TensorSpec& spec) {
  auto& codec = codecs_[spec.codec];
  if (!codec) codec = make_codec(spec.codec);
  codec->set_threads(options_.codec_threads);
  const HostMirror host(request.in, true, comm_->device());
  const std::span<float> numbers(static_cast<float*>(host.view().data), host.view().count);
  const std::string tensor = fmt::format("{}[{}]", spec.name, numbers.size());
  OwnedBuffer& wire = wire_[tensor + spec.codec];
  const uint64_t room = codec->max_bytes(numbers.size()) / size_of(codec->wire_dtype());
  if (wire.view().count != room) wire = comm_->allocate(room, codec->wire_dtype());
  const std::span<std::byte> bytes(static_cast<std::byte*>(wire.view().data), wire.view().bytes());
  const size_t used = codec->encode(tensor, numbers, bytes);
  if (codec->is_dense()) {
    Request encoded = Request::all_reduce(
        wire.view(), {request.op, request.reduction, request.name, options_.timeout});
    move_plain(encoded, false);
    codec->decode(bytes, numbers);
    return host.write_back(comm_->device());
  }
  const Gathered all = comm_->all_gather(BufferView{bytes.data(), used, DType::kU8, {}},
                                         {.name = request.name, .timeout = options_.timeout});
  std::fill(numbers.begin(), numbers.end(), 0.0F);
  const auto* at = static_cast<const std::byte*>(all.data.view().data);
  int contributors = 0;
  for (const uint64_t length : all.counts) {
    if (length > 0) codec->decode_add({at, length}, numbers);
    contributors += length > 0 ? 1 : 0;
    at += length;
  }
  if (request.op == ReduceOp::kAverage) scale(host.view(), 1.0 / std::max(contributors, 1));
  host.write_back(comm_->device());
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
