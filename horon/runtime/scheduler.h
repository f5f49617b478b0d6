#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "horon/runtime/agreement.h"
#include "horon/runtime/plan.h"
#include "horon/runtime/stall.h"
#include "horon/runtime/submission.h"

namespace horon {

// Operations that share one collective: all tensors of a bucket, or one operation alone.
struct Transfer {
  int bucket = -1;       // the items are all of this bucket; -1: a single operation
  bool by_plan = false;  // without an agreement: another rank may deviate
  std::vector<Submission> items = {};
};

// What the lane does next.
struct Action {
  enum class Kind : uint8_t {
    kNothing,   // sleep until `until`, a submission or a wait
    kTransfer,  // move it, then finish() or put_back()
    kAgree,     // run an agreement: call(), report(), decide(), take() and finish(), learn()
  };
  Kind kind = Kind::kNothing;
  Transfer transfer = {};
  Clock::time_point until = Clock::time_point::max();
};

// Decides what one lane does next. Pure: submissions, waits, times and decisions go in, actions
// come out. It has no threads, locks or clock and moves no bytes. Calls never block. Not
// thread-safe: the lane calls it with its lock held.
//
// It owns the pending operations, the plan, and the list of running operations:
//
//   scheduler.submit(std::move(item), Clock::now());
//   Action action = scheduler.next(Clock::now());
//   if (action.kind == Action::Kind::kTransfer) scheduler.finish(action.transfer, Clock::now());
class Scheduler {
 public:
  // How long a thread that waits for part of a bucket lets other threads submit the rest.
  static constexpr auto kQuiet = Milliseconds(1);
  // The same for a caller that only asked to be notified: the step may continue meanwhile.
  static constexpr auto kPatience = Milliseconds(20);
  // Longest pause between agreements that decide nothing: a rank is wrong or late.
  static constexpr auto kLongestPause = Milliseconds(500);

  // The plan starts with its first bucket. `urgent`: which of its set's two lanes this is.
  Scheduler(Plan plan, bool urgent);

  // Adds a pending operation; item.number grows from call to call. UsageError if the name is
  // already in flight.
  void submit(Submission item, Clock::time_point now);
  // Asks for the submissions up to this number to end. `waits`: a thread waits for them; otherwise
  // the caller only wants to be notified.
  void want(uint64_t number, bool waits);

  // Whether next() has something to do now, apart from pauses.
  bool can_act() const;
  // What to do at this time. The items of a transfer change from pending to running.
  Action next(Clock::time_point now);
  // The transfer has ended, with or without an error. After one that followed the plan, the next
  // bucket is expected.
  void finish(const Transfer& transfer, Clock::time_point now);
  // Another rank deviated and nothing was moved: the items are pending again.
  void put_back(Transfer transfer);

  // The options with which this rank requests an agreement, in the name of the operation that has
  // waited longest. Waits for barriers have no limit: other ranks may take as long as they need
  // before them.
  OpOptions call(Milliseconds timeout) const;
  // This rank's report for an agreement; each operation makes only one report fresh.
  PendingReport report();
  // Makes one agreed transfer; its items are running. All names must be pending.
  Transfer take(const AgreedTransfer& agreed);
  // Call after everything that was decided has run. Agreements that decide nothing are followed by
  // growing pauses; a submission ends a pause.
  void learn(const Decision& decision, Clock::time_point now);

  // Removes and returns what is pending: everything, or the operation of this name, if it is.
  std::vector<Submission> drop(const std::optional<std::string>& name = {});
  // Changes the plan and recounts what its buckets miss.
  void change_plan(const std::function<void(Plan& plan)>& change);
  const Plan& plan() const { return plan_; }
  // Belongs to the set's other lane: runs here once, until the ranks have agreed on its priority
  // class.
  bool is_guest(const TensorSpec& spec) const { return spec.is_urgent() != urgent_; }

  bool has_pending() const { return !pending_.empty(); }
  // The oldest operation that has not ended, running ones first, and when it was submitted.
  std::optional<std::pair<std::string, Clock::time_point>> oldest() const;
  // Adds the operations that have not ended and, if later than state.last, the last one that
  // finished (RankState reads the clock to say how long ago).
  void describe(RankState& state) const;

 private:
  void count(Submission& item);
  void count_all();
  Submission take_one(const std::string& name);

  bool urgent_;
  Plan plan_;
  std::unordered_map<std::string, Submission> pending_;
  std::unordered_map<std::string, Clock::time_point> running_;  // name -> when it was submitted
  std::vector<int> missing_;     // by bucket: tensors not yet submitted
  size_t unplanned_ = 0;         // pending operations that do not follow the plan
  uint64_t waited_up_to_ = 0;    // a thread waits for this submission and all before it
  uint64_t expected_up_to_ = 0;  // a caller wants to be notified of it
  Clock::time_point last_submitted_;
  bool told_stuck_ = false;  // the last report was stuck
  int quiet_rounds_ = 0;     // consecutive agreements that decided nothing
  Clock::time_point not_before_;
  std::string last_finished_;
  Clock::time_point last_finished_at_;
};

}  // namespace horon
