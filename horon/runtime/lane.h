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

#include "horon/codec/codec.h"
#include "horon/comm/communicator.h"
#include "horon/runtime/agreement.h"
#include "horon/runtime/autotune.h"
#include "horon/runtime/gate.h"
#include "horon/runtime/plan.h"
#include "horon/runtime/stall.h"
#include "horon/runtime/trace.h"

namespace horon {

// Always on, of one rank; read while it runs.
struct RuntimeCounters {
  uint64_t operations = 0;               // named operations that ended well
  uint64_t collectives = 0;              // that carried them: buckets and single ones
  uint64_t control_messages = 0;         // agreements and calls for them; 0 in a step that repeats
  uint64_t bytes = 0;                    // of payload
  uint64_t bytes_copied = 0;             // into and out of buckets
  uint64_t overtaken = 0;                // times that a large transfer made way between chunks
  std::vector<uint64_t> waited_us = {};  // for each rank of the job: how long we waited for it
};

// The named operations of one set of ranks: collects what is submitted, in whatever order, and runs
// it in one that all ranks agree on. Buckets of the plan run when they are whole, in the plan's
// order, without a word between the ranks; what is not as planned goes through an agreement
// (agreement.h). Any thread may call. A thread that waits does the work itself if nobody else is
// at it; a thread of the lane's own does it otherwise.
class Lane {
 public:
  struct Options {
    PlanLimits limits;
    Milliseconds timeout{600'000};  // longest wait for other ranks; barriers: no limit
    std::string name = "hrn-lane";
    uint8_t number = 0;                                 // in traces
    std::shared_ptr<Recorder> recorder;                 // may be null
    std::function<void()> on_submit;                    // may be null
    std::function<void(const std::string& line)> warn;  // may be null
    std::function<void()> on_death;                     // may be null; after an error ended it all
    std::vector<uint64_t> tries;                        // sizes of buckets to try; empty: no tuning
    std::function<void(const Tuning& found)> on_tuned;  // on rank 0, when that is over
    std::shared_ptr<Gate> gate;        // of this rank: what is urgent goes first; may be null
    bool urgent = false;               // others make way for us
    uint64_t chunk_bytes = 16U << 20;  // others: transfers are cut into such pieces
    int codec_threads = 1;
  };
  Lane(std::unique_ptr<Communicator> comm, const Options& options);
  // Work that has not begun ends with an Error; work that waits for other ranks is given up after
  // two seconds, and they learn of it.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // `request` moves the bytes when it is alone in its bucket; its buffers stay valid until the end.
  // UsageError for a name that is in flight already.
  Work submit(TensorSpec spec, Request request);
  // submit() and wait, on this thread if nothing else is going on.
  void run(TensorSpec spec, Request request);
  // All ranks: the tensors of every step, and memory for their buckets. UsageError on all if they
  // do not declare the same.
  std::vector<OwnedBuffer> declare(const std::vector<TensorSpec>& specs,
                                   std::vector<BufferView>& views);
  // Takes part with nothing until all ranks have joined; the last one that did. Nothing may be in
  // flight here.
  int join();

  Communicator& comm() { return *comm_; }
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
    int bucket = -1;      // that knows that it is here; -1: not as planned
  };
  struct Memory {  // of one bucket
    OwnedBuffer buffer;
    uint64_t key = 0;  // of the bucket that it was made for
  };
  using Lock = std::unique_lock<std::mutex>;

  Work enqueue(TensorSpec spec, Request request, bool wakes);
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
  Report make_report();
  void apply(Lock& lock, const Decision& decision);
  bool run_bucket(Lock& lock, std::vector<Item> items, int bucket, bool may_deviate);
  BufferView pack(std::vector<Item>& items, int bucket, bool& copied);
  void run_single(Lock& lock, Item item);
  // Without the lock; one thread at a time.
  bool move_plain(const Request& request, bool may_deviate);
  void move(const Request& request, const TensorSpec& spec);

  void move_encoded(const Request& request, const TensorSpec& spec);
  Item take(const std::string& name);
  void put_back(std::vector<Item> items);
  void finish(std::vector<Item>& items, std::exception_ptr error);
  void note_waits();
  Milliseconds patience() const;
  void trace(const std::vector<Item>& items, uint64_t bytes, int64_t begun, bool failed) const;
  void fail_all(const std::exception_ptr& error);
  OwnedBuffer allocate(uint64_t count, const TensorSpec& like);
  const OwnedBuffer& memory_of(int bucket);

  Options options_;
  std::unique_ptr<Communicator> comm_;
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
  uint64_t waited_up_to_ = 0;  // somebody waits for this submission, and so for those before it
  Clock::time_point last_submitted_;
  std::map<int, Memory> memory_;
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
  StragglerWatch stragglers_;                             // of whoever drives
  std::vector<uint64_t> away_us_;                         // at the last operation
  std::map<std::string, std::unique_ptr<Codec>> codecs_;  // of whoever drives
  std::map<std::string, OwnedBuffer> wire_;               // their memory, by tensor
  std::thread thread_;
};

}  // namespace horon
