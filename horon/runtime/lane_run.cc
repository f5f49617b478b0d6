// What the driving thread executes: transfers, agreements, tuning.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "horon/base/error.h"
#include "horon/runtime/lane.h"

namespace horon {
namespace {

// Waits until the inputs of the operations are ready.
template <typename Lock>
void await_inputs(Lock& lock, const std::vector<Submission>& items) {
  if (std::none_of(items.begin(), items.end(),
                   [](const Submission& item) { return item.request.ready != nullptr; }))
    return;
  lock.unlock();
  for (const Submission& item : items)
    if (item.request.ready) item.request.ready();
  lock.lock();
}

// One request for all items. False if another rank deviated.
bool move_packed(Mover& mover, const Transfer& transfer, const BucketPacker::Packed& packed) {
  const std::vector<Submission>& items = transfer.items;
  const TensorSpec& spec = items.front().spec;
  Request request = items.front().request;
  request.name = spec.name;
  std::vector<Segment> segments;
  const bool encodes = !spec.codec.empty();
  if (items.size() == 1) {
    if (encodes) segments.push_back({spec.name, 0, request.in.count, items.front().step});
  } else {
    request.in = request.out = packed.whole;
    // Ready only if all are; the others are what the caller has queued.
    for (const Submission& item : items)
      if (!item.request.ready) request.ready = nullptr;
    request.name = fmt::format("{} and {} more", spec.name, items.size() - 1);
    for (size_t i = 0; i < items.size() && encodes; ++i)
      segments.push_back(
          {items[i].spec.name, packed.layout.offsets[i], items[i].spec.count, items[i].step});
  }
  return mover.move(std::move(request), spec, std::move(segments), transfer.by_plan);
}

struct Reports {
  std::vector<PendingReport> of;  // by rank, of those that have not joined
  std::vector<int> ranks;         // their ranks in the job
};

Reports exchange(Communicator& comm, const PendingReport& report, Milliseconds timeout) {
  std::string mine = pack_report(report);
  const BufferView in{mine.data(), mine.size(), DType::kU8, {}};
  const Gathered all = comm.all_gather(in, {.name = "agreement", .timeout = timeout});
  Reports reports;
  uint64_t offset = 0;
  for (size_t i = 0; i < all.counts.size(); ++i) {
    if (all.counts[i] == 0) continue;  // has joined
    const auto* at = static_cast<const char*>(all.data.view().data) + offset;
    reports.of.push_back(unpack_report({at, all.counts[i]}));
    reports.ranks.push_back(comm.members()[i]);
    offset += all.counts[i];
  }
  return reports;
}

}  // namespace

void Lane::carry_out(Lock& lock, Action action) {
  if (action.kind == Action::Kind::kAgree) return agree(lock, false);
  if (!move(lock, std::move(action.transfer))) return agree(lock, true);
  if (tuner_.is_on() && scheduler_.plan().expected() == 0) tune(lock);
}

// All ranks call this: those that request the agreement, after saying so, and those that learned of
// it when they started a bucket.
void Lane::agree(Lock& lock, bool heard) {
  const Milliseconds timeout = options_.mover.timeout;
  if (!heard) {
    const OpOptions options = scheduler_.call(timeout);
    lock.unlock();
    comm_->deviate(options);  // returns when all ranks have arrived
    lock.lock();
  }
  const PendingReport mine = scheduler_.report();
  lock.unlock();
  const Reports reports = exchange(*comm_, mine, timeout);
  lock.lock();
  statistics_.note_control(heard ? 1 : 2);
  const Decision decision = decide(reports.of, reports.ranks, scheduler_.plan());
  for (const auto& [name, why] : decision.wrong)
    finish(scheduler_.take({.names = {name}}),
           std::make_exception_ptr(UsageError(why, ExitCode::kMismatch)));
  for (const AgreedTransfer& agreed : split_decision(decision, scheduler_.plan()))
    move(lock, scheduler_.take(agreed));
  scheduler_.learn(decision, Clock::now());
}

// False if another rank deviated; then the items are pending again.
bool Lane::move(Lock& lock, Transfer transfer) {
  const std::vector<Submission>& items = transfer.items;
  BucketPacker::Packed packed{.whole = items.front().request.in};
  std::exception_ptr error;
  bool done = true;
  int64_t begun = trace_now();
  try {
    await_inputs(lock, items);
    if (items.size() > 1) {
      packed = packer_.pack(items, scheduler_.plan(), transfer.bucket);
      statistics_.note_copies(packed.bytes_copied);
    }
    begun = trace_now();
    lock.unlock();
    done = move_packed(mover_, transfer, packed);
    if (done) packer_.unpack(items, packed);
    for (const Submission& item : items)
      if (done && item.request.done) item.request.done();
  } catch (const UsageError&) {
    error = std::current_exception();
  } catch (...) {  // they are no longer pending: their waiters must get the error
    if (!lock.owns_lock()) lock.lock();
    statistics_.note_death(items, packed.whole.bytes(), begun);
    finish(transfer, std::current_exception());
    throw;
  }
  if (!lock.owns_lock()) lock.lock();
  if (!done) {
    scheduler_.put_back(std::move(transfer));
    return false;
  }
  statistics_.note_transfer(items, packed.whole.bytes(), begun, error != nullptr, *comm_);
  finish(transfer, error);
  return true;
}

void Lane::finish(const Transfer& transfer, const std::exception_ptr& error) {
  scheduler_.finish(transfer, Clock::now());
  for (const Submission& item : transfer.items) {
    if (!error) statistics_.note_success();
    if (!error && scheduler_.is_guest(item.spec) && options_.on_other_class)
      options_.on_other_class(item.spec);
    item.work.finish(error);
  }
}

// After each step that followed the plan. All ranks count the same steps; rank 0's measurements
// decide.
void Lane::tune(Lock& lock) {
  std::optional<Tuning> next =
      tuner_.end_step(Clock::now(), scheduler_.plan(), mover_.codec_threads());
  if (!next) return;
  if (tuner_.has_tried_all()) {
    std::array<int64_t, 2> agreed = {static_cast<int64_t>(next->bucket_bytes), next->codec_threads};
    lock.unlock();
    comm_->broadcast(view_of(agreed), 0, {.name = "autotune", .timeout = options_.mover.timeout});
    next = {static_cast<uint64_t>(agreed[0]), static_cast<int>(agreed[1])};
    if (comm_->rank() == 0 && options_.on_tuned) options_.on_tuned(*next);
    lock.lock();
    statistics_.note_control(1);
    tuner_.stop();
  }
  mover_.set_codec_threads(next->codec_threads);
  scheduler_.change_plan([&](Plan& plan) { tuner_.use(*next, plan); });
}

}  // namespace horon
