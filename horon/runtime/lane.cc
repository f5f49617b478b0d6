// The threads of a lane: submitting, waiting, choosing the driving thread.
#include "horon/runtime/lane.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/error.h"
#include "horon/base/thread.h"

namespace horon {

Lane::Lane(std::unique_ptr<Communicator> comm, const Options& options)
    : options_(options),
      comm_(std::move(comm)),
      mover_(*comm_, options.mover),
      packer_(mover_, comm_->device()),
      scheduler_(options.plan.value_or(Plan(options.limits)), options.mover.urgent),
      statistics_({options.number, options.recorder, options.warn}),
      tuner_(options.tries, options.limits) {
  thread_ = std::thread([this, name = options.name] {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    work_loop();
  });
}

Lane::~Lane() { retire(); }

Plan Lane::retire() {
  if (!thread_.joinable()) return scheduler_.plan();
  {
    Lock lock(mutex_);
    stops_ = true;
    const Deadline deadline = Deadline::after(kFarewell);
    while (driving_ && !deadline.passed()) waiters_.sleep(lock, deadline.at());
    // Still waiting for the others: tells them that we gave up, and interrupts our thread.
    if (driving_) comm_->leave();
    while (driving_) waiters_.sleep(lock, Clock::time_point::max());
    fail_all(std::make_exception_ptr(Error("the runtime was closed before this operation began")));
    waiters_.wake();
    // The caller's threads that wait in here must have left; at exit there may be many.
    while (waiters_.count > 0) waiters_.sleep(lock, Clock::now() + Milliseconds(1));
  }
  work_.notify_all();
  thread_.join();
  return scheduler_.plan();
}

RuntimeCounters Lane::counters() const {
  const Lock lock(mutex_);
  RuntimeCounters counters = statistics_.counters();
  const Mover::Options& moves = options_.mover;
  if (moves.gate && !moves.urgent) counters.overtaken = moves.gate->times_made_way();
  return counters;
}

std::optional<std::pair<std::string, Clock::time_point>> Lane::oldest() const {
  const Lock lock(mutex_);
  return scheduler_.oldest();
}

void Lane::describe(RankState& state) const {
  const Lock lock(mutex_);
  scheduler_.describe(state);
}

// Wakes the lane's thread only when it has something to do.
Work Lane::submit(TensorSpec spec, Request request, std::optional<uint64_t> step,
                  bool waits_at_once) {
  Lock lock(mutex_);
  if (dead_) std::rethrow_exception(dead_);
  const uint64_t number = ++submissions_;
  Work work(
      [this, number](const Work& self, Deadline deadline) { wait_for(number, self, deadline); });
  request.timeout = spec.kind == OpKind::kBarrier ? kNoLimit : options_.mover.timeout;
  const auto now = Clock::now();
  scheduler_.submit({std::move(spec), std::move(request), work, now, number, step}, now);
  const bool acts = !waits_at_once && !driving_ && scheduler_.can_act();
  lock.unlock();
  if (acts) work_.notify_one();
  if (options_.on_submit) options_.on_submit();
  return work;
}

bool Lane::withdraw(const std::string& name) {
  const Lock lock(mutex_);
  const std::vector<Submission> items = scheduler_.drop(name);
  for (const Submission& item : items)
    item.work.finish(std::make_exception_ptr(Error("'" + name + "' was withdrawn")));
  waiters_.wake();
  return !items.empty();
}

// The waiting thread drives unless another thread does. Not if its deadline is near: an action that
// it started could take longer.
void Lane::wait_for(uint64_t number, const Work& work, Deadline deadline) {
  Lock lock(mutex_);
  const bool waits = !deadline.passed();
  if (!work.done()) scheduler_.want(number, waits);
  while (!work.done() && !deadline.passed()) {
    Clock::time_point later = deadline.at();
    if (deadline.is_never() && !driving_ && drive(lock, later)) continue;
    if (!deadline.is_never()) work_.notify_one();
    if (!work.done()) waiters_.sleep(lock, later);
  }
  if (!work.done()) work_.notify_one();  // the lane's thread takes over from a thread that gave up
}

void Lane::Waiters::sleep(Lock& lock, Clock::time_point until) {
  ++count;
  if (until == Clock::time_point::max()) {
    ended.wait(lock);
  } else {
    ended.wait_until(lock, until);
  }
  --count;
}

void Lane::work_loop() {
  Lock lock(mutex_);
  while (!stops_) {
    Clock::time_point later = Clock::time_point::max();
    if (!driving_ && drive(lock, later)) continue;
    if (stops_) return;
    if (later == Clock::time_point::max()) {
      work_.wait(lock);
    } else {
      work_.wait_until(lock, later);
    }
  }
}

// --- driving

// Takes and executes the next action; false if there is none before `later`.
bool Lane::drive(Lock& lock, Clock::time_point& later) {
  Action action = scheduler_.next(Clock::now());
  if (action.kind == Action::Kind::kNothing) {
    later = std::min(later, action.until);
    return false;
  }
  driving_ = true;
  Gate* gate = options_.mover.urgent ? options_.mover.gate.get() : nullptr;
  if (gate != nullptr) gate->begin_urgent();
  try {
    carry_out(lock, std::move(action));
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    fail_all(std::current_exception());
    if (options_.on_death) options_.on_death();
  }
  if (gate != nullptr) gate->end_urgent();
  end_driving();
  return true;
}

// Waits until no thread drives, then calls `call` without the lock. The caller ends driving, with
// the lock held.
std::exception_ptr Lane::drive_alone(Lock& lock, const std::function<void()>& call) {
  while (driving_) waiters_.sleep(lock, Clock::time_point::max());
  driving_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    call();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  return error;
}

// Wakes other threads only if they have something to do.
void Lane::end_driving() {
  driving_ = false;
  waiters_.wake();
  if (scheduler_.can_act()) work_.notify_one();
}

// The lane has failed: every waiting thread gets the reason.
void Lane::fail_all(const std::exception_ptr& error) {
  dead_ = error;
  for (const Submission& item : scheduler_.drop()) item.work.finish(error);
}

// --- collective calls

namespace {

// Checks that the list is the same on all ranks, or UsageError on all; also whether all have the
// same plan.
bool agree_on_declared(Communicator& comm, const std::vector<TensorSpec>& specs, uint64_t digest,
                       Milliseconds timeout) {
  std::string mine = fmt::format("{:016x}", digest) + pack_specs(specs);
  const size_t prefix = mine.size() - pack_specs(specs).size();
  const BufferView in{mine.data(), mine.size(), DType::kU8, {}};
  const Gathered all = comm.all_gather(in, {.name = "declare", .timeout = timeout});
  const auto* at = static_cast<const char*>(all.data.view().data);
  bool same_plan = digest != 0;
  for (size_t i = 0, offset = 0; i < all.counts.size(); offset += all.counts[i++]) {
    const std::string_view theirs(at + offset, all.counts[i]);
    if (theirs.substr(std::min(prefix, theirs.size())) != std::string_view(mine).substr(prefix))
      throw UsageError("declare: ranks declare different tensors", ExitCode::kMismatch);
    same_plan = same_plan && theirs == mine;
  }
  return same_plan;
}

}  // namespace

bool Lane::declare(const std::vector<TensorSpec>& specs, std::vector<OwnedBuffer>& buckets,
                   std::vector<BufferView>& views) {
  Lock lock(mutex_);
  require(!scheduler_.has_pending(), "declare: operations are in flight");
  if (dead_) std::rethrow_exception(dead_);
  for (const TensorSpec& spec : specs)
    require(!scheduler_.is_guest(spec), "declare: '" + spec.name + "' is of the other lane");
  uint64_t digest = 0;
  bool kept = false;
  const std::exception_ptr error = drive_alone(lock, [&] {
    {
      const Lock guard(mutex_);
      if (options_.plan) digest = scheduler_.plan().digest();
      options_.plan.reset();  // offered only once
    }
    kept = agree_on_declared(*comm_, specs, digest, options_.mover.timeout);
  });
  end_driving();
  if (error) std::rethrow_exception(error);
  if (!kept) {
    scheduler_.change_plan([&](Plan& plan) {
      if (digest != 0) plan = Plan(options_.limits);  // as on new ranks
      plan.declare(specs);
    });
  }
  if (!specs.empty()) tuner_.stop();  // their memory is in use: buckets stay as they are
  packer_.declare(specs, scheduler_.plan(), buckets, views);
  return kept;
}

void Lane::require_idle(const std::string& doing) const {
  const Lock lock(mutex_);
  if (dead_) std::rethrow_exception(dead_);
  require(!scheduler_.oldest(),
          doing + ": operations of this rank are in flight; wait for them first");
}

int Lane::join() {
  Lock lock(mutex_);
  if (dead_) std::rethrow_exception(dead_);
  int last = 0;
  const std::exception_ptr error = drive_alone(
      lock, [&] { last = comm_->join({.name = "join", .timeout = options_.mover.timeout}); });
  if (error) {
    fail_all(error);
  } else {  // those that joined first did not learn what the others did
    scheduler_.change_plan([](Plan& plan) { plan.restart(); });
  }
  end_driving();
  if (error) std::rethrow_exception(error);
  return last;
}

}  // namespace horon
