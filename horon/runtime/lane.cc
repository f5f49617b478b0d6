#include "horon/runtime/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/thread.h"

namespace horon {
namespace {

// A thread that waits for a part of a bucket gives the others this long to submit the rest.
constexpr auto kQuiet = Milliseconds(1);
// The same for one that only wants to be told: the step may go on meanwhile.
constexpr auto kPatience = Milliseconds(20);
// Between agreements that decide nothing: somebody made a mistake, or is late.
constexpr auto kLongestPause = Milliseconds(500);
}  // namespace

Lane::Lane(std::unique_ptr<Communicator> comm, const Options& options)
    : options_(options),
      comm_(std::move(comm)),
      mover_(*comm_, options.mover),
      plan_(options.plan.value_or(Plan(options.limits))) {
  plan_.begin_step();
  count_all();
  thread_ = std::thread([this, name = options.name] {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    work_loop();
  });
}

Lane::~Lane() { close(); }

Plan Lane::retire() {
  close();
  return std::move(plan_);
}

void Lane::close() {
  if (!thread_.joinable()) return;
  {
    Lock lock(mutex_);
    stops_ = true;
    const Deadline deadline = Deadline::after(kFarewell);
    while (driving_ && !deadline.passed()) sleep(lock, deadline.at());
    // Still waiting for the others: they learn that we have given up, and so does our thread.
    if (driving_) comm_->leave();
    while (driving_) sleep(lock, Clock::time_point::max());
    fail_all(std::make_exception_ptr(Error("the runtime was closed before this operation began")));
    done_.notify_all();
    // Threads of the caller that waited in here must be out of it: they may be many, at exit.
    while (waiters_ > 0) sleep(lock, Clock::now() + Milliseconds(1));
  }
  work_.notify_all();
  thread_.join();
}

RuntimeCounters Lane::counters() const {
  const Lock lock(mutex_);
  RuntimeCounters counters = counters_;
  const Mover::Options& moves = options_.mover;
  if (moves.gate && !moves.urgent) counters.overtaken = moves.gate->times_made_way();
  return counters;
}

std::optional<std::pair<std::string, Clock::time_point>> Lane::oldest() const {
  const Lock lock(mutex_);
  std::optional<std::pair<std::string, Clock::time_point>> found;
  const auto consider = [&](const std::string& name, Clock::time_point since) {
    if (!found || since < found->second) found = {name, since};
  };
  for (const auto& [name, since] : running_) consider(name, since);
  if (found) return found;  // what runs was submitted before what waits behind it
  for (const auto& [name, item] : pending_) consider(name, item.submitted);
  return found;
}

void Lane::describe(RankState& state) const {
  constexpr size_t kMost = 1000;
  const Lock lock(mutex_);
  for (const auto& [name, since] : running_) state.pending.push_back(name);
  for (const auto& [name, item] : pending_) {
    if (state.pending.size() < kMost) state.pending.push_back(name);
  }
  state.note_finished(last_finished_, last_finished_at_);
}

// --- from callers

Work Lane::submit(TensorSpec spec, Request request, std::optional<uint64_t> step) {
  return enqueue(std::move(spec), std::move(request), step, true);
}

void Lane::run(TensorSpec spec, Request request, std::optional<uint64_t> step) {
  enqueue(std::move(spec), std::move(request), step, false).wait();
}

// The thread of the lane is woken only when there is something for it to do.
Work Lane::enqueue(TensorSpec spec, Request request, std::optional<uint64_t> step, bool wakes) {
  Lock lock(mutex_);
  if (dead_) std::rethrow_exception(dead_);
  const uint64_t number = ++submissions_;
  Work work(
      [this, number](const Work& self, Deadline deadline) { wait_for(number, self, deadline); });
  request.timeout = spec.kind == OpKind::kBarrier ? kNoLimit : options_.mover.timeout;
  last_submitted_ = Clock::now();
  not_before_ = {};
  const auto [at, fresh] = pending_.try_emplace(spec.name);
  if (!fresh || running_.contains(spec.name)) {
    if (fresh) pending_.erase(at);
    throw UsageError(
        fmt::format("'{}' is in flight already; wait for it, or give it another name", spec.name));
  }
  at->second = {std::move(spec), std::move(request), work, last_submitted_, number};
  at->second.step = step;
  count(at->second);
  const bool acts = wakes && !driving_ && is_actionable();
  lock.unlock();
  if (acts) work_.notify_one();
  if (options_.on_submit) options_.on_submit();
  return work;
}

void Lane::count(Item& item) {
  item.bucket = plan_.bucket_for(item.spec);
  if (item.bucket >= 0) {
    --missing_[static_cast<size_t>(item.bucket)];
  } else {
    ++unplanned_;
  }
}

// After the plan has changed.
void Lane::count_all() {
  missing_.clear();
  unplanned_ = 0;
  for (const Bucket& bucket : plan_.buckets())
    missing_.push_back(static_cast<int>(bucket.tensors.size()));
  for (auto& [name, item] : pending_) count(item);
}

// The thread that waits does the work, unless another one is at it. Not one that has little time:
// what it began could keep it longer.
void Lane::wait_for(uint64_t number, const Work& work, Deadline deadline) {
  Lock lock(mutex_);
  uint64_t& wanted = deadline.passed() ? expected_up_to_ : waited_up_to_;
  if (!work.done()) wanted = std::max(wanted, number);
  while (!work.done() && !deadline.passed()) {
    Clock::time_point later = deadline.at();
    if (deadline.is_never() && !driving_ && step(lock, later)) continue;
    if (!deadline.is_never()) work_.notify_one();
    if (!work.done()) sleep(lock, later);
  }
  if (!work.done()) work_.notify_one();  // the lane's own thread goes on for those who gave up
}

void Lane::sleep(Lock& lock, Clock::time_point until) {
  ++waiters_;
  if (until == Clock::time_point::max()) {
    done_.wait(lock);
  } else {
    done_.wait_until(lock, until);
  }
  --waiters_;
}

void Lane::work_loop() {
  Lock lock(mutex_);
  while (!stops_) {
    Clock::time_point later = Clock::time_point::max();
    if (!driving_ && step(lock, later)) continue;
    if (stops_) return;
    if (later == Clock::time_point::max()) {
      work_.wait(lock);
    } else {
      work_.wait_until(lock, later);
    }
  }
}

void Lane::begin_driving(Lock& lock) {
  while (driving_) sleep(lock, Clock::time_point::max());
  driving_ = true;
}

// Others go on only if there is something for them.
void Lane::end_driving() {
  driving_ = false;
  if (waiters_ > 0) done_.notify_all();
  if (is_actionable()) work_.notify_one();
}

// --- what to do next

bool Lane::is_actionable() const { return unplanned_ > 0 || is_whole(plan_.expected()); }

bool Lane::is_whole(int bucket) const {
  return bucket >= 0 && missing_[static_cast<size_t>(bucket)] == 0;
}

bool Lane::wants_agreement(Clock::time_point now, Clock::time_point& later) const {
  if (unplanned_ > 0) return true;
  Clock::time_point due = Clock::time_point::max();
  for (const auto& [name, item] : pending_) {
    if (item.number <= waited_up_to_) due = std::min(due, last_submitted_ + kQuiet);
    if (item.number <= expected_up_to_) due = std::min(due, last_submitted_ + kPatience);
  }
  later = std::min(later, due);
  return now >= due;
}

bool Lane::step(Lock& lock, Clock::time_point& later) {
  if (dead_ || pending_.empty()) return false;
  const auto now = Clock::now();
  if (now < not_before_) {
    later = std::min(later, not_before_);
    return false;
  }
  const bool whole = is_whole(plan_.expected());
  if (!whole && !wants_agreement(now, later)) return false;
  driving_ = true;
  Gate* gate = options_.mover.urgent ? options_.mover.gate.get() : nullptr;
  if (gate != nullptr) gate->begin_urgent();
  try {
    whole ? run_expected(lock) : agree_and_run(lock, false);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    fail_all(std::current_exception());
    if (options_.on_death) options_.on_death();
  }
  if (gate != nullptr) gate->end_urgent();
  end_driving();
  return true;
}

void Lane::run_expected(Lock& lock) {
  const int bucket = plan_.expected();
  std::vector<Item> items;
  const auto& tensors = plan_.buckets()[static_cast<size_t>(bucket)].tensors;
  items.reserve(tensors.size());
  for (const size_t place : tensors) items.push_back(take(plan_.tensor(place).name));
  if (run_items(lock, std::move(items), bucket, true)) {
    plan_.advance();
    if (!options_.tries.empty() && plan_.expected() == 0) tune(lock);
  } else {
    agree_and_run(lock, true);
  }
}

// After each step that went by plan, on all ranks alike: they count the same steps. What rank 0
// measured decides.
void Lane::tune(Lock& lock) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - step_began_).count();
  step_began_ = now;
  if (tuned_version_ != plan_.version()) {  // other tensors: what was measured is worth nothing
    tuner_ = std::make_unique<Tuner>(Tuning{options_.limits.bucket_bytes, mover_.codec_threads()},
                                     tuning_candidates());
    tuned_version_ = plan_.version();
    return;
  }
  if (!tuner_ || !tuner_->add(seconds)) return;
  Tuning next = tuner_->current();
  if (tuner_->done()) {
    const Tuning& best = tuner_->best();
    std::array<int64_t, 2> agreed = {static_cast<int64_t>(best.bucket_bytes), best.codec_threads};
    lock.unlock();
    comm_->broadcast(view_of(agreed), 0, {.name = "autotune", .timeout = options_.mover.timeout});
    next = {static_cast<uint64_t>(agreed[0]), static_cast<int>(agreed[1])};
    if (comm_->rank() == 0 && options_.on_tuned) options_.on_tuned(next);
    lock.lock();
    ++counters_.control_messages;
    tuner_.reset();
    options_.tries.clear();
  }
  PlanLimits limits = options_.limits;
  limits.bucket_bytes = next.bucket_bytes;
  mover_.set_codec_threads(next.codec_threads);
  plan_.set_limits(limits);
  count_all();
  tuned_version_ = plan_.version();
}

// Threads are tried only where something is encoded.
std::vector<Tuning> Lane::tuning_candidates() const {
  bool encodes = false;
  for (const Bucket& bucket : plan_.buckets())
    encodes = encodes || !plan_.tensor(bucket.tensors.front()).codec.empty();
  std::vector<Tuning> candidates;
  for (const uint64_t bytes : options_.tries) {
    for (const int threads : {1, 2, 4}) {
      if (encodes || threads == mover_.codec_threads()) candidates.push_back({bytes, threads});
    }
  }
  return candidates;
}

// --- agreement

// Waits for a barrier have no limit: what the others do meanwhile may take as long as it takes.
Milliseconds Lane::patience() const {
  const bool only_barriers = std::all_of(pending_.begin(), pending_.end(), [](const auto& entry) {
    return entry.second.spec.kind == OpKind::kBarrier;
  });
  return only_barriers ? kNoLimit : options_.mover.timeout;
}

// "'fc.weight' and 3 more": the one that has waited longest, for messages.
std::string Lane::describe_pending() const {
  const Item* first = nullptr;
  for (const auto& [name, item] : pending_) {
    if (first == nullptr || item.number < first->number) first = &item;
  }
  if (first == nullptr) return "";
  if (pending_.size() == 1) return first->spec.name;
  return fmt::format("{} and {} more", first->spec.name, pending_.size() - 1);
}

Report Lane::make_report() {
  Report report;
  std::vector<Item*> items;
  for (auto& [name, item] : pending_) items.push_back(&item);
  std::sort(items.begin(), items.end(),
            [](const Item* a, const Item* b) { return a->number < b->number; });
  for (Item* item : items) {
    report.pending.push_back(item->spec);
    report.fresh = report.fresh || !std::exchange(item->told, true);
    report.stuck = report.stuck || item->number <= std::max(waited_up_to_, expected_up_to_);
  }
  if (report.stuck && !std::exchange(told_stuck_, true)) report.fresh = true;
  if (!report.stuck) told_stuck_ = false;
  return report;
}

// Called by all ranks: by those that want it, which say so first, and by those that heard of it
// when they came with a bucket.
void Lane::agree_and_run(Lock& lock, bool heard) {
  if (!heard) {
    const OpOptions options{.name = describe_pending(), .timeout = patience()};
    lock.unlock();
    comm_->deviate(options);  // until all have arrived
    lock.lock();
  }
  std::string mine = pack_report(make_report());
  lock.unlock();
  const BufferView in{mine.data(), mine.size(), DType::kU8, {}};
  const Gathered all =
      comm_->all_gather(in, {.name = "agreement", .timeout = options_.mover.timeout});
  lock.lock();
  counters_.control_messages += heard ? 1 : 2;
  std::vector<Report> reports;
  std::vector<int> ranks;
  uint64_t offset = 0;
  for (size_t i = 0; i < all.counts.size(); ++i) {
    if (all.counts[i] == 0) continue;  // has joined
    const auto* at = static_cast<const char*>(all.data.view().data) + offset;
    reports.push_back(unpack_report({at, all.counts[i]}));
    ranks.push_back(comm_->members()[i]);
    offset += all.counts[i];
  }
  apply(lock, decide(reports, ranks, plan_));
}

void Lane::apply(Lock& lock, const Decision& decision) {
  for (const auto& [name, why] : decision.wrong) {
    std::vector<Item> items;
    items.push_back(take(name));
    finish(items, std::make_exception_ptr(UsageError(why, ExitCode::kMismatch)));
  }
  // Whole buckets as buckets, the rest one by one, in the order of the decision.
  std::map<int, size_t> in_bucket;
  for (const TensorSpec& spec : decision.run) {
    const TensorSpec* known = plan_.find(spec.name);
    if (plan_.is_regular(spec.name) && same_request(*known, spec))
      ++in_bucket[plan_.bucket_of(spec.name)];
  }
  std::vector<std::pair<int, std::vector<std::string>>> runs;
  for (const TensorSpec& spec : decision.run) {
    const int bucket = plan_.bucket_of(spec.name);
    const bool whole = bucket >= 0 && in_bucket[bucket] == plan_.names_in(bucket).size();
    if (!whole) {
      runs.push_back({-1, {spec.name}});
    } else if (std::none_of(runs.begin(), runs.end(),
                            [&](const auto& run) { return run.first == bucket; })) {
      runs.emplace_back(bucket, plan_.names_in(bucket));
    }
  }
  for (const auto& [bucket, names] : runs) {
    std::vector<Item> items;
    for (const std::string& name : names) items.push_back(take(name));
    run_items(lock, std::move(items), bucket, false);
  }
  std::vector<TensorSpec> ours = decision.run;  // what belongs into the other lane was a guest
  std::erase_if(ours, [&](const TensorSpec& spec) { return !is_ours(spec); });
  plan_.learn(ours, decision.skipped);
  count_all();
  quiet_rounds_ = decision.progress ? 0 : quiet_rounds_ + 1;
  if (quiet_rounds_ == 0) return;
  const auto pause =
      std::min<Clock::duration>(Milliseconds(1) * (1 << std::min(quiet_rounds_, 9)), kLongestPause);
  not_before_ = Clock::now() + pause;
}

// --- all ranks at once

// The same list on all ranks, or UsageError on all. Whether all have the same plan, too.
bool Lane::agree_on_declared(const std::vector<TensorSpec>& specs, uint64_t digest) {
  std::string mine = fmt::format("{:016x}", digest) + pack_specs(specs);
  const size_t prefix = mine.size() - pack_specs(specs).size();
  const BufferView in{mine.data(), mine.size(), DType::kU8, {}};
  const Gathered all =
      comm_->all_gather(in, {.name = "declare", .timeout = options_.mover.timeout});
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

bool Lane::declare(const std::vector<TensorSpec>& specs, std::vector<OwnedBuffer>& buckets,
                   std::vector<BufferView>& views) {
  Lock lock(mutex_);
  require(pending_.empty(), "declare: operations are in flight");
  if (dead_) std::rethrow_exception(dead_);
  for (const TensorSpec& spec : specs)
    require(is_ours(spec), "declare: '" + spec.name + "' is of the other lane");
  begin_driving(lock);
  const uint64_t digest = options_.plan ? plan_.digest() : 0;
  options_.plan.reset();  // it is asked about once
  lock.unlock();
  std::exception_ptr error;
  bool kept = false;
  try {
    kept = agree_on_declared(specs, digest);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  end_driving();
  if (error) std::rethrow_exception(error);
  if (digest != 0 && !kept) plan_ = Plan(options_.limits);  // as newcomers have it
  if (!kept) plan_.declare(specs);
  count_all();
  if (!specs.empty()) options_.tries.clear();  // their memory is handed out: buckets stay
  declared_memory_.clear();
  views.assign(specs.size(), BufferView());
  for (const Bucket& bucket : plan_.declared()) {
    const TensorSpec& first = specs[bucket.tensors.front()];
    declared_memory_.push_back(mover_.allocate(bucket.count, first.dtype, first.device));
    const BufferView whole = declared_memory_.back().view();
    for (size_t i = 0; i < bucket.tensors.size(); ++i) {
      const size_t place = bucket.tensors[i];
      views[place] = whole.slice(bucket.offsets[i], specs[place].count);
    }
  }
  buckets.insert(buckets.end(), declared_memory_.begin(), declared_memory_.end());
  return kept;
}

void Lane::require_idle(const std::string& doing) const {
  const Lock lock(mutex_);
  if (dead_) std::rethrow_exception(dead_);
  require(pending_.empty() && running_.empty(),
          doing + ": operations of this rank are in flight; wait for them first");
}

int Lane::join() {
  Lock lock(mutex_);
  if (dead_) std::rethrow_exception(dead_);
  begin_driving(lock);
  lock.unlock();
  int last = 0;
  std::exception_ptr error;
  try {
    last = comm_->join({.name = "join", .timeout = options_.mover.timeout});
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error) {
    fail_all(error);
  } else {  // those that joined first did not learn what the others did
    plan_.restart();
    count_all();
  }
  end_driving();
  if (error) std::rethrow_exception(error);
  return last;
}

}  // namespace horon
