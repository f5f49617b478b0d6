#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "horon/comm/communicator.h"
#include "horon/runtime/agreement.h"
#include "horon/runtime/autotune.h"
#include "horon/runtime/counters.h"
#include "horon/runtime/mover.h"
#include "horon/runtime/plan.h"
#include "horon/runtime/stall.h"
#include "horon/runtime/trace.h"

namespace horon {

// The named operations of one set of ranks: collects what is submitted, in whatever order, and runs
// it in one that all ranks agree on. Buckets of the plan run when they are whole, in the plan's
// order, without a word between the ranks; what is not as planned goes through an agreement
// (agreement.h). Any thread may call. A thread that waits does the work itself if nobody else is
// at it; a thread of the lane's own does it otherwise.
//
// A set has two: one for what is urgent. A name that the ranks have not agreed on yet comes to the
// other one, whatever they want of it: there a rank that calls it urgent meets one that does not.
class Lane {
 public:
  // An operation that runs when the lane is closed has this long to end.
  static constexpr auto kFarewell = std::chrono::seconds(2);

  struct Options {
    PlanLimits limits;
    Mover::Options mover;
    std::string name = "hrn-lane";
    uint8_t number = 0;                                 // in traces
    std::shared_ptr<Recorder> recorder;                 // may be null
    std::function<void()> on_submit;                    // may be null
    std::function<void(const std::string& line)> warn;  // may be null
    std::function<void()> on_death;                     // may be null; after an error ended it all
    std::vector<uint64_t> tries;                        // sizes of buckets to try; empty: no tuning
    std::function<void(const Tuning& found)> on_tuned;  // on rank 0, when that is over
    // An operation that belongs into the other lane of its set was agreed on and has run here: from
    // now on it is submitted there. May be null.
    std::function<void(const TensorSpec& spec)> on_other_class;
    std::optional<Plan> plan;  // that another lane had learnt; see declare()
  };
  Lane(std::unique_ptr<Communicator> comm, const Options& options);
  // Work that has not begun ends with an Error; work that waits for other ranks is given up after
  // two seconds, and they learn of it.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // `request` moves the bytes when it is alone in its bucket; its buffers stay valid until the end.
  // UsageError for a name that is in flight already. `step`: for its codec.
  Work submit(TensorSpec spec, Request request, std::optional<uint64_t> step = {});
  // submit() and wait, on this thread if nothing else is going on.
  void run(TensorSpec spec, Request request, std::optional<uint64_t> step = {});
  // All ranks: the tensors of every step, and memory for their buckets. UsageError on all if they
  // do not declare the same. If all ranks have a plan of another lane (Options::plan), and the same
  // one, it is kept: nothing has to be agreed on again. True if so.
  bool declare(const std::vector<TensorSpec>& specs, std::vector<OwnedBuffer>& buckets,
               std::vector<BufferView>& views);
  // Ends it, as the destructor does; what it has learnt.
  Plan retire();
  // Takes part with nothing until all ranks have joined; the last one that did. Nothing may be in
  // flight here.
  int join();
  // UsageError if something is in flight.
  void require_idle(const std::string& doing) const;

  // The oldest operation that is not over, if any: its name and when it was submitted.
  std::optional<std::pair<std::string, Clock::time_point>> oldest() const;
  // Adds what is pending, and what was finished last if that was later than state.last.
  void describe(RankState& state) const;
  RuntimeCounters counters() const;

 private:
  struct Item {
    TensorSpec spec;
    Request request;
    Work work;
    Clock::time_point submitted;
    uint64_t number = 0;  // of its submission
    bool told = false;    // was in a report
    std::optional<uint64_t> step = {};
    int bucket = -1;  // that knows that it is here; -1: not as planned
  };
  struct Memory {  // of one bucket
    OwnedBuffer buffer;
    uint64_t key = 0;  // of the bucket that it was made for
  };
  using Lock = std::unique_lock<std::mutex>;

  Work enqueue(TensorSpec spec, Request request, std::optional<uint64_t> step, bool wakes);
  void close();
  bool agree_on_declared(const std::vector<TensorSpec>& specs, uint64_t digest);
  void wait_for(uint64_t number, const Work& work, Deadline deadline);
  void count(Item& item);
  void count_all();
  void work_loop();
  bool is_actionable() const;
  void sleep(Lock& lock, Clock::time_point until);
  // Waits until no thread is at it, and becomes the one that is.
  void begin_driving(Lock& lock);
  void end_driving();
  bool is_whole(int bucket) const;
  bool wants_agreement(Clock::time_point now, Clock::time_point& later) const;
  // Does the next thing there is to do; false if there is none before `later`.
  bool step(Lock& lock, Clock::time_point& later);
  void run_expected(Lock& lock);
  void tune(Lock& lock);
  std::vector<Tuning> tuning_candidates() const;
  void agree_and_run(Lock& lock, bool heard);
  bool is_ours(const TensorSpec& spec) const { return spec.is_urgent() == options_.mover.urgent; }
  std::string describe_pending() const;
  Report make_report();
  void apply(Lock& lock, const Decision& decision);
  // `bucket`: the items are all of it; -1: one that runs alone. False if another rank deviated:
  // then they are pending again.
  bool run_items(Lock& lock, std::vector<Item> items, int bucket, bool may_deviate);
  bool move_items(std::vector<Item>& items, const Bucket& planned, const BufferView& whole,
                  bool may_deviate);
  static void await(Lock& lock, const std::vector<Item>& items);
  BufferView pack(const std::vector<Item>& items, int bucket, bool& copied);
  void unpack(const std::vector<Item>& items, const Bucket& planned, const BufferView& whole);
  Item take(const std::string& name);
  void put_back(std::vector<Item> items);
  void finish(std::vector<Item>& items, const std::exception_ptr& error);
  void note_waits();
  Milliseconds patience() const;
  void trace(const std::vector<Item>& items, uint64_t bytes, int64_t begun, bool failed) const;
  void fail_all(const std::exception_ptr& error);
  BufferView memory_of(int bucket);

  Options options_;
  std::unique_ptr<Communicator> comm_;
  Mover mover_;                   // of whoever drives
  mutable std::mutex mutex_;      // guards all below
  std::condition_variable work_;  // for the lane's thread: there is something to do
  std::condition_variable done_;  // for threads that wait
  int waiters_ = 0;               // on done_
  bool stops_ = false;
  bool driving_ = false;  // a thread is at it
  Plan plan_;
  std::unordered_map<std::string, Item> pending_;
  std::vector<int> missing_;  // of each bucket: tensors that were not submitted yet
  size_t unplanned_ = 0;      // pending, and not as the plan has them
  uint64_t submissions_ = 0;
  uint64_t waited_up_to_ = 0;    // somebody waits for this submission, and so for those before it
  uint64_t expected_up_to_ = 0;  // somebody wants to be told of it
  Clock::time_point last_submitted_;
  std::vector<OwnedBuffer> declared_memory_;  // of the plan's declared buckets
  std::map<int, Memory> memory_;              // of the others
  bool told_stuck_ = false;
  int quiet_rounds_ = 0;  // agreements in a row that decided nothing
  Clock::time_point not_before_;
  std::exception_ptr dead_;
  std::unordered_map<std::string, Clock::time_point> running_;  // taken by whoever drives
  std::string last_finished_;
  Clock::time_point last_finished_at_;
  RuntimeCounters counters_;
  std::unique_ptr<Tuner> tuner_;
  uint64_t tuned_version_ = 0;  // of the plan that is being tuned
  Clock::time_point step_began_;
  StragglerWatch stragglers_;      // of whoever drives
  std::vector<uint64_t> away_us_;  // at the last operation
  std::thread thread_;
};

}  // namespace horon
