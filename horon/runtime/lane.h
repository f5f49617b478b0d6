#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "horon/comm/communicator.h"
#include "horon/runtime/autotune.h"
#include "horon/runtime/bucket_packer.h"
#include "horon/runtime/counters.h"
#include "horon/runtime/lane_statistics.h"
#include "horon/runtime/mover.h"
#include "horon/runtime/scheduler.h"
#include "horon/runtime/stall.h"

namespace horon {

// A lane: the named operations of one set of ranks at one priority. It collects submissions in any
// order and runs them in an order that all ranks agree on. Complete buckets of the plan run in the
// plan's order, with no messages but the collectives; anything else goes through an agreement
// (agreement.h).
//
// The scheduler decides what to do; the lane adds the lock, the threads and the communicator. One
// thread at a time drives: it takes an action from the scheduler and executes it. It packs a bucket
// with the lock held, and releases the lock while it waits, communicates or unpacks. A thread that
// waits for an operation drives if no other thread does; otherwise the lane's own thread drives.
// Thread-safe. Every rank of the communicator has a lane of the same kind over it.
//
// Each set has two lanes, one of them for urgent operations. A name that the ranks have not agreed
// on yet goes to the other one, whatever its priority: there a rank that calls it urgent meets one
// that does not.
//
// Errors: a mismatch is a UsageError of that operation, and the lane continues. Any other error
// ends all operations in flight and all later ones.
class Lane {
 public:
  // How long an operation that runs when the lane is closed may take to end.
  static constexpr auto kFarewell = std::chrono::seconds(2);

  struct Options {
    PlanLimits limits;
    Mover::Options mover;
    std::string name = "hrn-lane";                      // of the lane's thread
    uint8_t number = 0;                                 // in traces
    std::shared_ptr<Recorder> recorder;                 // may be null
    std::function<void()> on_submit;                    // may be null
    std::function<void(const std::string& line)> warn;  // may be null
    std::function<void()> on_death;  // may be null; after an error has ended the lane
    std::vector<uint64_t> tries;     // bucket sizes to try, bytes; empty: no tuning
    std::function<void(const Tuning& found)> on_tuned;  // on rank 0, when tuning ends
    // An operation of the other lane of this set was agreed on and has run here: submit it there
    // from now on. May be null.
    std::function<void(const TensorSpec& spec)> on_other_class;
    std::optional<Plan> plan;  // learned by an earlier lane; see declare()
  };
  // Callbacks except on_submit and on_tuned are called with the lane's lock held: they must not
  // call the lane.
  Lane(std::unique_ptr<Communicator> comm, const Options& options);
  // Operations that have not started end with an Error; an operation that waits for other ranks is
  // abandoned after two seconds, and those ranks get an error.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Queues a named operation. `request` moves the bytes when it is alone in its bucket; its buffers
  // stay valid until the Work ends. `step`: for the codec. `waits_at_once`: the calling thread is
  // about to wait, so the lane's own thread is not woken. UsageError if the name is already in
  // flight.
  Work submit(TensorSpec spec, Request request, std::optional<uint64_t> step = {},
              bool waits_at_once = false);
  // Withdraws an operation that has not begun: its Work ends with an Error. False if it runs or has
  // ended.
  bool withdraw(const std::string& name);
  // Declares the tensors of every step and allocates their buckets. All ranks call it; UsageError
  // on all if their lists differ. If all ranks have the same plan from an earlier lane
  // (Options::plan), it is kept and no agreement is needed. True if so.
  bool declare(const std::vector<TensorSpec>& specs, std::vector<OwnedBuffer>& buckets,
               std::vector<BufferView>& views);
  // Closes the lane, as the destructor does, and returns its plan.
  Plan retire();
  // Contributes nothing until all ranks have joined. Returns the rank that joined last. All ranks
  // call it; nothing of this rank may be in flight here.
  int join();
  // UsageError if an operation is in flight.
  void require_idle(const std::string& doing) const;

  // The oldest operation that has not ended, if any: its name and when it was submitted.
  std::optional<std::pair<std::string, Clock::time_point>> oldest() const;
  // Adds the pending operations and, if later than state.last, the last one that finished.
  void describe(RankState& state) const;
  RuntimeCounters counters() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  struct Waiters {  // threads that wait for operations to end
    std::condition_variable ended;
    int count = 0;
    void sleep(Lock& lock, Clock::time_point until);
    void wake() {
      if (count > 0) ended.notify_all();
    }
  };

  // lane.cc: threads, waiting, choosing the driving thread.
  void wait_for(uint64_t number, const Work& work, Deadline deadline);
  void work_loop();
  std::exception_ptr drive_alone(Lock& lock, const std::function<void()>& call);
  bool drive(Lock& lock, Clock::time_point& later);
  void end_driving();
  void fail_all(const std::exception_ptr& error);
  // lane_run.cc: called by the driving thread.
  void carry_out(Lock& lock, Action action);
  void agree(Lock& lock, bool heard);
  bool move(Lock& lock, Transfer transfer);
  void finish(const Transfer& transfer, const std::exception_ptr& error);
  void tune(Lock& lock);

  Options options_;
  std::unique_ptr<Communicator> comm_;
  Mover mover_;                   // used by the driving thread
  BucketPacker packer_;           // used by the driving thread
  mutable std::mutex mutex_;      // guards everything below
  std::condition_variable work_;  // wakes the lane's thread: there is something to do
  Waiters waiters_;
  bool stops_ = false;
  bool driving_ = false;  // a thread drives: no other touches mover, packer, communicator
  uint64_t submissions_ = 0;
  std::exception_ptr dead_;  // the error that ended the lane
  Scheduler scheduler_;
  LaneStatistics statistics_;
  LaneTuner tuner_;
  std::thread thread_;  // last: uses all other members
};

}  // namespace horon
