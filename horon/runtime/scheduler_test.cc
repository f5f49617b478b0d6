// The scheduler without threads: what goes in, what comes out. Times are made up.
#include "horon/runtime/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "horon/base/error.h"

namespace horon {
namespace {

using Kind = Action::Kind;

constexpr auto kNever = Clock::time_point::max();
constexpr Milliseconds kTimeout{5000};

// After the beginning of the test.
Clock::time_point at(int64_t milliseconds) {
  return Clock::time_point() + std::chrono::hours(1) + Milliseconds(milliseconds);
}

TensorSpec tensor(char name, uint64_t count = 100) {
  TensorSpec spec;
  spec.name = std::string(1, name);
  spec.count = count;
  return spec;
}

std::vector<TensorSpec> tensors(const std::string& names) {
  std::vector<TensorSpec> specs;
  for (const char name : names) specs.push_back(tensor(name));
  return specs;
}

std::string names_of(const Transfer& transfer) {
  std::string names;
  for (const Submission& item : transfer.items) names += item.spec.name;
  return names;
}

std::string names_of(const std::vector<TensorSpec>& specs) {
  std::string names;
  for (const TensorSpec& spec : specs) names += spec.name;
  return names;
}

// A bucket holds two tensors of 400 bytes, the first one alone: "abcde" is a, bc, de.
constexpr PlanLimits kLimits{1, 800};

Plan planned(const std::string& names) {
  Plan plan(kLimits);
  plan.declare(tensors(names));
  return plan;
}

// One rank's scheduler with what its lane would add.
struct Rank {
  Scheduler scheduler;
  uint64_t submissions = 0;

  explicit Rank(const std::string& declared = "", bool urgent = false)
      : scheduler(declared.empty() ? Plan(kLimits) : planned(declared), urgent) {}

  uint64_t submit(const TensorSpec& spec, Clock::time_point now = at(0)) {
    Submission item;
    item.spec = spec;
    item.submitted = now;
    item.number = ++submissions;
    scheduler.submit(std::move(item), now);
    return submissions;
  }
  uint64_t submit(const std::string& names, Clock::time_point now = at(0)) {
    for (const char name : names) submit(tensor(name), now);
    return submissions;
  }
  // The names of the transfer that is next; "" if there is none. It is over at once.
  std::string run_next(Clock::time_point now = at(0)) {
    const Action action = scheduler.next(now);
    if (action.kind != Kind::kTransfer) return "";
    scheduler.finish(action.transfer, now);
    return names_of(action.transfer);
  }
  // What all ranks decide if each has what this one has; the transfers that come of it.
  std::vector<std::string> agree(Clock::time_point now = at(0)) {
    const std::vector<PendingReport> reports(2, scheduler.report());
    const Decision decision = decide(reports, std::vector{0, 1}, scheduler.plan());
    std::vector<std::string> ran;
    for (const AgreedTransfer& agreed : split_decision(decision, scheduler.plan())) {
      const Transfer transfer = scheduler.take(agreed);
      EXPECT_FALSE(transfer.by_plan);
      EXPECT_EQ(transfer.bucket, agreed.bucket);
      scheduler.finish(transfer, now);
      ran.push_back(names_of(transfer));
    }
    scheduler.learn(decision, now);
    return ran;
  }
};

// --- buckets of the plan

TEST(SchedulerBuckets, NothingIsDoneWhileNothingIsPending) {
  Rank rank("abc");
  EXPECT_FALSE(rank.scheduler.can_act());
  EXPECT_FALSE(rank.scheduler.has_pending());
  const Action action = rank.scheduler.next(at(0));
  EXPECT_EQ(action.kind, Kind::kNothing);
  EXPECT_EQ(action.until, kNever);
}

TEST(SchedulerBuckets, ABucketRunsWhenItsLastTensorComesWhateverTheOrder) {
  std::string order = "abcd";
  do {
    Rank rank("abcd");  // a, bc, d
    std::string ran;
    std::string submitted;
    for (const char name : order) {
      rank.submit(tensor(name));
      submitted += name;
      while (rank.scheduler.can_act()) ran += rank.run_next() + " ";
      // As much of the plan as is there, from its beginning.
      const auto has = [&](char one) { return submitted.find(one) != std::string::npos; };
      std::string want;
      if (has('a')) want += "a ";
      if (has('a') && has('b') && has('c')) want += "bc ";
      if (submitted.size() == 4) want += "d ";
      EXPECT_EQ(ran, want) << "after " << submitted;
    }
    EXPECT_FALSE(rank.scheduler.has_pending());
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(SchedulerBuckets, ALaterBucketWaitsForThoseBeforeIt) {
  Rank rank("abcde");
  rank.submit("edcb");
  EXPECT_FALSE(rank.scheduler.can_act());
  EXPECT_EQ(rank.run_next(), "");
  rank.submit("a");
  EXPECT_EQ(rank.run_next(), "a");
  EXPECT_EQ(rank.run_next(), "bc");
  EXPECT_EQ(rank.run_next(), "de");
  EXPECT_EQ(rank.run_next(), "");
  rank.submit("abcde");  // and round again
  EXPECT_EQ(rank.run_next(), "a");
}

TEST(SchedulerBuckets, ATransferGoesByPlanAndHasThePlansOrder) {
  Rank rank("abc");
  rank.submit("a");
  rank.run_next();
  rank.submit("cb");
  const Action action = rank.scheduler.next(at(0));
  ASSERT_EQ(action.kind, Kind::kTransfer);
  EXPECT_TRUE(action.transfer.by_plan);
  EXPECT_EQ(action.transfer.bucket, 1);
  EXPECT_EQ(names_of(action.transfer), "bc");
  EXPECT_EQ(action.transfer.items[0].number, 3U);
  EXPECT_EQ(action.transfer.items[1].number, 2U);
}

TEST(SchedulerBuckets, OnlyAFinishedTransferMakesTheNextBucketExpected) {
  Rank rank("abc");
  rank.submit("abc");
  const Action first = rank.scheduler.next(at(0));
  EXPECT_EQ(rank.scheduler.plan().expected(), 0);
  rank.scheduler.finish(first.transfer, at(0));
  EXPECT_EQ(rank.scheduler.plan().expected(), 1);
}

// --- a rank that deviated

TEST(SchedulerDeviations, PutTheItemsBackAsTheyWere) {
  Rank rank("abc");
  rank.submit("a");
  rank.run_next();
  rank.submit("cb");
  Action action = rank.scheduler.next(at(0));
  ASSERT_EQ(names_of(action.transfer), "bc");
  EXPECT_FALSE(rank.scheduler.has_pending());
  rank.submit("x");  // meanwhile
  rank.scheduler.put_back(std::move(action.transfer));
  EXPECT_EQ(rank.scheduler.plan().expected(), 1);
  EXPECT_EQ(names_of(rank.scheduler.report().pending), "cbx");  // in the order of submission
  EXPECT_EQ(rank.run_next(), "bc");                             // whole as before
  EXPECT_EQ(rank.scheduler.next(at(0)).kind, Kind::kAgree);     // x
}

TEST(SchedulerDeviations, WhatWasPutBackIsPartOfTheAgreement) {
  Rank rank("abc");
  rank.submit("a");
  Action action = rank.scheduler.next(at(0));
  rank.scheduler.put_back(std::move(action.transfer));
  EXPECT_EQ(rank.agree(), std::vector<std::string>{"a"});
  EXPECT_FALSE(rank.scheduler.has_pending());
  EXPECT_EQ(rank.scheduler.plan().expected(), 1);
}

// --- what is not as planned

TEST(SchedulerAgreements, AreCalledAtOnceForWhatIsNotPlanned) {
  Rank unknown("abc");
  unknown.submit("x");
  EXPECT_TRUE(unknown.scheduler.can_act());
  EXPECT_EQ(unknown.scheduler.next(at(0)).kind, Kind::kAgree);
  Rank changed("abc");
  changed.submit(tensor('b', 7));
  EXPECT_TRUE(changed.scheduler.can_act());
  EXPECT_EQ(changed.scheduler.next(at(0)).kind, Kind::kAgree);
}

TEST(SchedulerAgreements, AWholeBucketGoesFirst) {
  Rank rank("abc");
  rank.submit("xa");
  EXPECT_EQ(rank.run_next(), "a");
  EXPECT_EQ(rank.scheduler.next(at(0)).kind, Kind::kAgree);
}

TEST(SchedulerAgreements, APartOfABucketWaitsForTheRestUntilSomebodyWaits) {
  Rank rank("abc");
  rank.submit("a");
  rank.run_next();
  const uint64_t number = rank.submit("b", at(10));
  Action action = rank.scheduler.next(at(100'000));
  EXPECT_EQ(action.kind, Kind::kNothing);
  EXPECT_EQ(action.until, kNever);
  rank.scheduler.want(number, true);
  EXPECT_FALSE(rank.scheduler.can_act());  // it is a matter of time
  action = rank.scheduler.next(at(10));
  EXPECT_EQ(action.kind, Kind::kNothing);
  EXPECT_EQ(action.until, at(10) + Scheduler::kQuiet);
  EXPECT_EQ(rank.scheduler.next(action.until).kind, Kind::kAgree);
}

TEST(SchedulerAgreements, SubmissionsKeepTheQuietTimeFromPassing) {
  Rank rank("abcdefg");  // a, bc, de, fg
  rank.submit("a");
  rank.run_next();
  rank.scheduler.want(rank.submit("b", at(0)), true);
  rank.submit("d", at(5));
  EXPECT_EQ(rank.scheduler.next(at(5)).until, at(5) + Scheduler::kQuiet);
  rank.submit("f", at(7));
  EXPECT_EQ(rank.scheduler.next(at(7)).until, at(7) + Scheduler::kQuiet);
  EXPECT_EQ(rank.scheduler.next(at(8)).kind, Kind::kAgree);
}

TEST(SchedulerAgreements, AreRequestedLaterWithoutAWaitingThread) {
  Rank rank("abc");
  rank.submit("a");
  rank.run_next();
  const uint64_t number = rank.submit("b", at(10));
  rank.scheduler.want(number, false);
  Action action = rank.scheduler.next(at(10));
  EXPECT_EQ(action.kind, Kind::kNothing);
  EXPECT_EQ(action.until, at(10) + Scheduler::kPatience);
  EXPECT_EQ(rank.scheduler.next(action.until).kind, Kind::kAgree);
  rank.scheduler.want(number, true);  // until somebody waits, too
  EXPECT_EQ(rank.scheduler.next(at(10)).until, at(10) + Scheduler::kQuiet);
}

TEST(SchedulerAgreements, AWaitIsForWhatWasSubmittedBeforeIt) {
  Rank rank("abc");
  const uint64_t number = rank.submit("a");
  rank.scheduler.want(number, true);
  rank.run_next();
  rank.submit("b", at(10));  // nobody waits for this one
  EXPECT_EQ(rank.scheduler.next(at(1000)).until, kNever);
  rank.scheduler.want(number, true);  // an old one changes nothing
  EXPECT_EQ(rank.scheduler.next(at(1000)).until, kNever);
  rank.submit("x", at(10));
  rank.scheduler.want(3, true);  // for x, and so for b
  EXPECT_TRUE(rank.scheduler.report().stuck);
  rank.scheduler.want(1, true);  // whoever waits for x still does
  EXPECT_TRUE(rank.scheduler.report().stuck);
}

TEST(SchedulerAgreements, RunWhatIsThereOfABucketOneByOne) {
  Rank rank("abcde");
  rank.submit("a");
  rank.run_next();
  rank.scheduler.want(rank.submit("cbe"), true);  // bc is whole, d is missing
  EXPECT_EQ(rank.agree(), (std::vector<std::string>{"bc", "e"}));
  EXPECT_FALSE(rank.scheduler.has_pending());
  EXPECT_LT(rank.scheduler.plan().bucket_of("d"), 0);  // it does not come in every step
  rank.submit("abce");
  EXPECT_EQ(rank.run_next(), "a");
  EXPECT_EQ(rank.run_next(), "bc");
  EXPECT_EQ(rank.run_next(), "e");
}

TEST(SchedulerAgreements, FailOnlyTheOperationsThatMismatch) {
  Rank rank("abc");
  rank.submit("xy");
  std::vector<PendingReport> reports(2, rank.scheduler.report());
  reports[1].pending[0].count = 7;
  const Decision decision = decide(reports, std::vector{0, 1}, rank.scheduler.plan());
  ASSERT_EQ(decision.wrong.size(), 1U);
  const Transfer wrong = rank.scheduler.take({.names = {"x"}});
  EXPECT_EQ(names_of(wrong), "x");
  rank.scheduler.finish(wrong, at(0));
  rank.scheduler.finish(rank.scheduler.take({.names = {"y"}}), at(0));
  rank.scheduler.learn(decision, at(0));
  EXPECT_FALSE(rank.scheduler.can_act());
  EXPECT_EQ(rank.scheduler.plan().find("x"), nullptr);
  EXPECT_NE(rank.scheduler.plan().find("y"), nullptr);
  rank.submit("a");
  EXPECT_EQ(rank.run_next(), "a");
}

TEST(SchedulerAgreements, PlanATensorAfterItsSecondOccurrence) {
  Rank rank;
  for (int step = 0; step < 2; ++step) {
    rank.submit("xyz");
    EXPECT_EQ(rank.scheduler.next(at(0)).kind, Kind::kAgree);
    EXPECT_EQ(rank.agree(), (std::vector<std::string>{"x", "y", "z"}));
  }
  rank.submit("zyx");
  EXPECT_EQ(rank.run_next(), "x");
  EXPECT_EQ(rank.run_next(), "yz");
}

// What is pending is counted anew when an agreement changes the buckets.
TEST(SchedulerAgreements, CountEarlySubmissionsInTheNewBuckets) {
  Rank rank;
  rank.submit("xy");
  rank.agree();
  rank.submit("xy");
  const std::vector<PendingReport> reports(2, rank.scheduler.report());
  const Decision decision = decide(reports, std::vector{0, 1}, rank.scheduler.plan());
  for (const AgreedTransfer& agreed : split_decision(decision, rank.scheduler.plan()))
    rank.scheduler.finish(rank.scheduler.take(agreed), at(0));
  rank.submit("x");  // of the next step, before x is planned
  rank.scheduler.learn(decision, at(0));
  EXPECT_EQ(rank.run_next(), "x");
}

// --- reports and calls

TEST(SchedulerReports, AreInTheOrderOfSubmission) {
  Rank rank("abc");
  rank.submit("cxb");
  const PendingReport report = rank.scheduler.report();
  EXPECT_EQ(names_of(report.pending), "cxb");
  EXPECT_TRUE(report.fresh);
  EXPECT_FALSE(report.stuck);
}

TEST(SchedulerReports, AreFreshOnceAfterEachChange) {
  Rank rank("abc");
  rank.submit("b");
  EXPECT_TRUE(rank.scheduler.report().fresh);
  EXPECT_FALSE(rank.scheduler.report().fresh);
  rank.submit("x");
  EXPECT_TRUE(rank.scheduler.report().fresh);
  EXPECT_FALSE(rank.scheduler.report().fresh);
  rank.submit("yz");  // one report tells of both
  EXPECT_TRUE(rank.scheduler.report().fresh);
  EXPECT_FALSE(rank.scheduler.report().fresh);
  rank.scheduler.want(1, true);
  const PendingReport stuck = rank.scheduler.report();
  EXPECT_TRUE(stuck.stuck);
  EXPECT_TRUE(stuck.fresh);
  EXPECT_FALSE(rank.scheduler.report().fresh);
  rank.scheduler.finish(rank.scheduler.take({.names = {"b"}}), at(0));
  EXPECT_FALSE(rank.scheduler.report().stuck);
  rank.scheduler.want(2, false);
  const PendingReport again = rank.scheduler.report();
  EXPECT_TRUE(again.stuck);
  EXPECT_TRUE(again.fresh);
}

TEST(SchedulerCalls, NameTheOldestSubmission) {
  Rank rank("abc");
  EXPECT_EQ(rank.scheduler.call(kTimeout).name, "");
  rank.submit("c");
  EXPECT_EQ(rank.scheduler.call(kTimeout).name, "c");
  rank.submit("xb");
  EXPECT_EQ(rank.scheduler.call(kTimeout).name, "c and 2 more");
}

TEST(SchedulerCalls, WaitForBarriersWithoutLimit) {
  Rank rank;
  TensorSpec barrier = tensor('x', 0);
  barrier.kind = OpKind::kBarrier;
  rank.submit(barrier);
  EXPECT_EQ(rank.scheduler.call(kTimeout).timeout, kNoLimit);
  barrier.name = "y";
  rank.submit(barrier);
  EXPECT_EQ(rank.scheduler.call(kTimeout).timeout, kNoLimit);
  rank.submit("z");  // others have one
  EXPECT_EQ(rank.scheduler.call(kTimeout).timeout, kTimeout);
}

// --- pauses

// No other rank has it.
Decision nothing_decided() { return {}; }

TEST(SchedulerPauses, GrowWhileAgreementsDecideNothing) {
  Rank rank;
  rank.submit("x");
  Clock::time_point now = at(0);
  Clock::duration last{0};
  for (int round = 1; round <= 12; ++round) {
    ASSERT_EQ(rank.scheduler.next(now).kind, Kind::kAgree);
    rank.scheduler.learn(nothing_decided(), now);
    const Action action = rank.scheduler.next(now);
    ASSERT_EQ(action.kind, Kind::kNothing);
    const auto pause = action.until - now;
    EXPECT_EQ(pause, std::min<Clock::duration>(Milliseconds(1 << std::min(round, 9)),
                                               Scheduler::kLongestPause));
    EXPECT_GE(pause, last);
    EXPECT_EQ(rank.scheduler.next(action.until - Milliseconds(1)).kind, Kind::kNothing);
    last = pause;
    now = action.until;
  }
  EXPECT_EQ(last, Scheduler::kLongestPause);
}

TEST(SchedulerPauses, EndWithASubmission) {
  Rank rank("abc");
  rank.submit("x");
  for (int round = 0; round < 9; ++round) rank.scheduler.learn(nothing_decided(), at(0));
  EXPECT_EQ(rank.scheduler.next(at(1)).kind, Kind::kNothing);
  rank.submit("y", at(1));
  EXPECT_EQ(rank.scheduler.next(at(1)).kind, Kind::kAgree);
}

TEST(SchedulerPauses, HoldUpWholeBucketsOnlyUntilTheyAreSubmitted) {
  Rank rank("abc");
  rank.submit("x");
  for (int round = 0; round < 9; ++round) rank.scheduler.learn(nothing_decided(), at(0));
  rank.submit("a", at(1));
  EXPECT_EQ(rank.run_next(at(1)), "a");
}

TEST(SchedulerPauses, AreResetAfterProgress) {
  Rank rank;
  rank.submit("x");
  for (int round = 0; round < 5; ++round) rank.scheduler.learn(nothing_decided(), at(0));
  Decision progress;
  progress.progress = true;
  rank.scheduler.learn(progress, at(1000));
  EXPECT_EQ(rank.scheduler.next(at(1000)).kind, Kind::kAgree);
  rank.scheduler.learn(nothing_decided(), at(1000));
  EXPECT_EQ(rank.scheduler.next(at(1000)).until, at(1002));
}

// --- names

std::string refusal_of(Rank& rank, const std::string& name) {
  try {
    rank.submit(name);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(SchedulerNames, AreInFlightOnceAtATime) {
  Rank rank("abc");
  const std::string text = "'b' is in flight already; wait for it, or give it another name";
  rank.submit("b");
  EXPECT_EQ(refusal_of(rank, "b"), text);
  rank.submit("ac");
  rank.run_next();
  const Action action = rank.scheduler.next(at(0));
  ASSERT_EQ(names_of(action.transfer), "bc");
  EXPECT_EQ(refusal_of(rank, "b"), text);  // it runs
  EXPECT_FALSE(rank.scheduler.has_pending());
  rank.scheduler.finish(action.transfer, at(0));
  EXPECT_EQ(refusal_of(rank, "b"), "");
}

TEST(SchedulerNames, ARefusedSubmissionChangesNothing) {
  Rank rank("abc");
  rank.submit("a");
  rank.run_next();
  rank.submit("b");
  EXPECT_THROW(rank.submit(tensor('b', 7)), UsageError);
  EXPECT_FALSE(rank.scheduler.can_act());
  rank.submit("c");
  EXPECT_EQ(rank.run_next(), "bc");
}

// --- classes

TEST(SchedulerClasses, ATensorOfAnotherPriorityRunsButIsNotPlanned) {
  TensorSpec urgent = tensor('u');
  urgent.priority = 3;
  Rank bulk("a");
  EXPECT_TRUE(bulk.scheduler.is_guest(urgent));
  EXPECT_FALSE(bulk.scheduler.is_guest(tensor('a')));
  for (int step = 0; step < 3; ++step) {
    bulk.submit(urgent);
    EXPECT_EQ(bulk.agree(), std::vector<std::string>{"u"});
    EXPECT_EQ(bulk.scheduler.plan().find("u"), nullptr);
  }
  Rank own("", true);
  EXPECT_FALSE(own.scheduler.is_guest(urgent));
  for (int step = 0; step < 2; ++step) {
    own.submit(urgent);
    own.agree();
  }
  own.submit(urgent);
  EXPECT_EQ(own.run_next(), "u");
}

// --- the plan

TEST(SchedulerPlans, AChangedPlanRecountsPendingSubmissions) {
  Rank rank("abc");
  rank.submit("bc");
  EXPECT_FALSE(rank.scheduler.can_act());  // a is missing
  rank.scheduler.change_plan([](Plan& plan) { plan.declare(tensors("b")); });
  EXPECT_EQ(rank.run_next(), "b");
  EXPECT_EQ(rank.scheduler.next(at(0)).kind, Kind::kAgree);  // c is not planned any more
}

TEST(SchedulerPlans, AnInheritedPlanStartsWithItsFirstBucket) {
  Rank before("abc");
  before.submit("a");
  before.run_next();
  ASSERT_EQ(before.scheduler.plan().expected(), 1);
  Scheduler after(before.scheduler.plan(), false);
  EXPECT_EQ(after.plan().expected(), 0);
}

TEST(SchedulerPlans, DroppedOperationsAreNotMissed) {
  Rank rank("abc");
  rank.submit("bx");
  std::string names;
  for (const Submission& item : rank.scheduler.drop()) names += item.spec.name;
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, "bx");
  EXPECT_FALSE(rank.scheduler.has_pending());
  EXPECT_FALSE(rank.scheduler.can_act());
  rank.submit("abc");
  EXPECT_EQ(rank.run_next(), "a");
  EXPECT_EQ(rank.run_next(), "bc");
}

TEST(SchedulerPlans, OneOperationMayBeDropped) {
  Rank rank("abc");
  rank.submit("bxy");
  EXPECT_TRUE(rank.scheduler.drop("q").empty());
  for (const std::string name : {"b", "x"}) {
    const auto items = rank.scheduler.drop(name);
    ASSERT_EQ(items.size(), 1U);
    EXPECT_EQ(items[0].spec.name, name);
  }
  EXPECT_EQ(names_of(rank.scheduler.report().pending), "y");
  rank.submit("abc");  // the plan misses what was dropped until it is submitted again
  EXPECT_EQ(rank.run_next(), "a");
  EXPECT_EQ(rank.run_next(), "bc");
}

// --- what is told to others

TEST(SchedulerStates, TheOldestIsWhatRunsElseWhatWaitsLongest) {
  Rank rank("abc");
  EXPECT_FALSE(rank.scheduler.oldest());
  rank.submit("b", at(1));
  rank.submit("a", at(2));
  EXPECT_EQ(rank.scheduler.oldest(), std::pair(std::string("b"), at(1)));
  const Action action = rank.scheduler.next(at(3));
  ASSERT_EQ(names_of(action.transfer), "a");
  EXPECT_EQ(rank.scheduler.oldest(), std::pair(std::string("a"), at(2)));
  RankState state;
  rank.scheduler.describe(state);
  EXPECT_EQ(state.pending, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(state.last, "");
  rank.scheduler.finish(action.transfer, at(4));
  EXPECT_EQ(rank.scheduler.oldest(), std::pair(std::string("b"), at(1)));
  RankState later;
  rank.scheduler.describe(later);
  EXPECT_EQ(later.pending, std::vector<std::string>{"b"});
  EXPECT_EQ(later.last, "a");
}

TEST(SchedulerStates, ListAtMostAThousandNames) {
  Rank rank;
  for (int i = 0; i < 1500; ++i) {
    TensorSpec spec = tensor('x');
    spec.name += std::to_string(i);
    rank.submit(spec);
  }
  RankState state;
  rank.scheduler.describe(state);
  EXPECT_EQ(state.pending.size(), 1000U);
}

}  // namespace
}  // namespace horon
