#include "horon/runtime/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/error.h"

namespace horon {
namespace {

bool is_whole(const Plan& plan, const std::vector<int>& missing) {
  const int bucket = plan.expected();
  return bucket >= 0 && missing[static_cast<size_t>(bucket)] == 0;
}

}  // namespace

Scheduler::Scheduler(Plan plan, bool urgent) : urgent_(urgent), plan_(std::move(plan)) {
  plan_.begin_step();
  count_all();
}

void Scheduler::submit(Submission item, Clock::time_point now) {
  last_submitted_ = now;
  not_before_ = {};
  const bool runs = running_.contains(item.spec.name);
  const auto [at, fresh] = pending_.try_emplace(item.spec.name, std::move(item));
  if (!fresh || runs) {
    const std::string name = at->first;
    if (fresh) pending_.erase(at);
    throw UsageError(
        fmt::format("'{}' is in flight already; wait for it, or give it another name", name));
  }
  count(at->second);
}

void Scheduler::want(uint64_t number, bool waits) {
  uint64_t& wanted = waits ? waited_up_to_ : expected_up_to_;
  wanted = std::max(wanted, number);
}

void Scheduler::count(Submission& item) {
  item.bucket = plan_.bucket_for(item.spec);
  if (item.bucket >= 0) {
    --missing_[static_cast<size_t>(item.bucket)];
  } else {
    ++unplanned_;
  }
}

// Recounts after the plan has changed.
void Scheduler::count_all() {
  missing_.clear();
  unplanned_ = 0;
  for (const Bucket& bucket : plan_.buckets())
    missing_.push_back(static_cast<int>(bucket.tensors.size()));
  for (auto& [name, item] : pending_) count(item);
}

void Scheduler::change_plan(const std::function<void(Plan& plan)>& change) {
  change(plan_);
  count_all();
}

// --- the next action

bool Scheduler::can_act() const { return unplanned_ > 0 || is_whole(plan_, missing_); }

Action Scheduler::next(Clock::time_point now) {
  Action action;
  if (pending_.empty()) return action;
  if (now < not_before_) {
    action.until = not_before_;
    return action;
  }
  if (is_whole(plan_, missing_)) {
    action.kind = Action::Kind::kTransfer;
    action.transfer.bucket = plan_.expected();
    action.transfer.by_plan = true;
    const auto& tensors = plan_.buckets()[static_cast<size_t>(plan_.expected())].tensors;
    action.transfer.items.reserve(tensors.size());
    for (const size_t index : tensors)
      action.transfer.items.push_back(take_one(plan_.tensor(index).name));
    return action;
  }
  // Waiting cannot complete an operation that does not follow the plan.
  Clock::time_point due = unplanned_ > 0 ? now : Clock::time_point::max();
  for (const auto& [name, item] : pending_) {
    if (now >= due) break;
    if (item.number <= waited_up_to_) due = std::min(due, last_submitted_ + kQuiet);
    if (item.number <= expected_up_to_) due = std::min(due, last_submitted_ + kPatience);
  }
  if (now >= due) {
    action.kind = Action::Kind::kAgree;
  } else {
    action.until = due;
  }
  return action;
}

Submission Scheduler::take_one(const std::string& name) {
  const auto found = pending_.find(name);
  Submission item = std::move(found->second);
  pending_.erase(found);
  if (item.bucket >= 0) {
    ++missing_[static_cast<size_t>(item.bucket)];
  } else {
    --unplanned_;
  }
  running_.emplace(item.spec.name, item.submitted);
  return item;
}

void Scheduler::finish(const Transfer& transfer, Clock::time_point now) {
  running_.clear();
  last_finished_ = transfer.items.back().spec.name;
  last_finished_at_ = now;
  if (transfer.by_plan) plan_.advance();
}

void Scheduler::put_back(Transfer transfer) {
  running_.clear();
  for (Submission& item : transfer.items) {
    count(item);
    const std::string name = item.spec.name;
    pending_.emplace(name, std::move(item));
  }
}

std::vector<Submission> Scheduler::drop(const std::optional<std::string>& name) {
  std::vector<Submission> items;
  for (auto& [key, item] : pending_) {
    if (!name || key == *name) items.push_back(std::move(item));
  }
  if (name) {
    pending_.erase(*name);
  } else {
    pending_.clear();
  }
  count_all();
  return items;
}

// --- agreements

OpOptions Scheduler::call(Milliseconds timeout) const {
  const Submission* first = nullptr;
  bool only_barriers = true;
  for (const auto& [name, item] : pending_) {
    if (first == nullptr || item.number < first->number) first = &item;
    only_barriers = only_barriers && item.spec.kind == OpKind::kBarrier;
  }
  OpOptions options{.timeout = only_barriers ? kNoLimit : timeout};
  if (first != nullptr) options.name = first->spec.name;
  if (pending_.size() > 1) options.name += fmt::format(" and {} more", pending_.size() - 1);
  return options;
}

PendingReport Scheduler::report() {
  PendingReport report;
  std::vector<Submission*> items;
  for (auto& [name, item] : pending_) items.push_back(&item);
  std::sort(items.begin(), items.end(),
            [](const Submission* a, const Submission* b) { return a->number < b->number; });
  for (Submission* item : items) {
    report.pending.push_back(item->spec);
    const bool fresh = !std::exchange(item->told, true);
    report.fresh = report.fresh || fresh;
    report.stuck = report.stuck || item->number <= std::max(waited_up_to_, expected_up_to_);
  }
  if (report.stuck && !std::exchange(told_stuck_, true)) report.fresh = true;
  if (!report.stuck) told_stuck_ = false;
  return report;
}

Transfer Scheduler::take(const AgreedTransfer& agreed) {
  Transfer transfer{.bucket = agreed.bucket};
  transfer.items.reserve(agreed.names.size());
  for (const std::string& name : agreed.names) transfer.items.push_back(take_one(name));
  return transfer;
}

void Scheduler::learn(const Decision& decision, Clock::time_point now) {
  std::vector<TensorSpec> ours = decision.run;
  std::erase_if(ours, [&](const TensorSpec& spec) { return is_guest(spec); });
  plan_.learn(ours, decision.skipped);
  count_all();
  quiet_rounds_ = decision.progress ? 0 : quiet_rounds_ + 1;
  if (quiet_rounds_ == 0) return;
  const auto pause =
      std::min<Clock::duration>(Milliseconds(1) * (1 << std::min(quiet_rounds_, 9)), kLongestPause);
  not_before_ = now + pause;
}

// --- state, for reports

std::optional<std::pair<std::string, Clock::time_point>> Scheduler::oldest() const {
  std::optional<std::pair<std::string, Clock::time_point>> found;
  const auto consider = [&](const std::string& name, Clock::time_point since) {
    if (!found || since < found->second) found = {name, since};
  };
  for (const auto& [name, since] : running_) consider(name, since);
  if (found) return found;  // running operations were submitted before pending ones
  for (const auto& [name, item] : pending_) consider(name, item.submitted);
  return found;
}

void Scheduler::describe(RankState& state) const {
  constexpr size_t kMost = 1000;
  for (const auto& [name, since] : running_) state.pending.push_back(name);
  for (const auto& [name, item] : pending_) {
    if (state.pending.size() < kMost) state.pending.push_back(name);
  }
  state.note_finished(last_finished_, last_finished_at_);
}

}  // namespace horon
