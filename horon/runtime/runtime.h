#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "horon/base/knob.h"
#include "horon/comm/communicator.h"
#include "horon/runtime/lane.h"
#include "horon/runtime/stall.h"

namespace horon {

// How a named operation is to be done. Must be equal on all ranks, but for the priority.
struct NamedOptions {
  ReduceOp op = ReduceOp::kSum;
  Reduction reduction = Reduction::kFast;
  double prescale = 1.0;   // factor on what goes in
  double postscale = 1.0;  // factor on what comes out
  int priority = 0;        // above 0: overtakes what is not, even between chunks of a transfer
  int set = 0;             // process set; 0: all ranks
  std::string codec = {};  // f32 all-reduce, sum or average: what travels instead (codec/codec.h)
};

struct RuntimeOptions {
  PlanLimits limits;
  uint64_t chunk_bytes =
      16U << 20;  // larger transfers are cut, so that urgent ones overtake; 0: never

  Milliseconds timeout{600'000};  // longest wait for ranks that are alive but late
  // Shared by all ranks: with it, waits are explained, and ranks that went silent end them. May be
  // null.
  std::shared_ptr<Store> store;
  StallMonitor::Options stall;
  std::function<void(const std::string& line)> warn;  // default: the log
  std::string flight_folder;  // for the last operations after an error; empty: nowhere
  int codec_threads = 0;      // 0: as many as there are cores for this rank, at most 4
  // Bucket sizes and codec threads are tried on the first steps, and the best is kept here for the
  // next run. Not for declared tensors: their memory is handed out. Empty: off.
  std::string autotune_file;
};

// As the settings say: buckets, stalls, where the last operations go.
RuntimeOptions runtime_options(const Knobs& knobs);

// Memory for the buckets of declared tensors, and where in it each tensor lies.
struct BucketMemory {
  std::vector<OwnedBuffer> buckets;
  std::vector<BufferView> views;  // of each tensor, in the order in which they were declared
};

// Named operations, asynchronous, from any thread: ranks may submit them in any order. The first
// time ranks agree; a step that repeats runs without a word between them, in buckets (plan.h).
// Buffers stay valid until the Work is over. A name is in flight once at a time. Unnamed operations
// ("") run in the order of their calls, which must be the same on all ranks.
//
// Errors: as Communicator's; every mismatch is the same UsageError on every rank, and the runtime
// works on. After PeerLostError or TimeoutError make a new communicator and a new runtime.
class Runtime {
 public:
  explicit Runtime(std::unique_ptr<Communicator> world, const RuntimeOptions& options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int rank() const;
  int size() const;
  Communicator& world() const { return *world_; }

  Work all_reduce(const std::string& name, BufferView data, const NamedOptions& options = {});
  // All of them or none, under one name.
  Work all_reduce(const std::string& name, const std::vector<BufferView>& parts,
                  const NamedOptions& options = {});
  Work all_reduce(const std::string& name, const ExactSum& sum, BufferView out,
                  const NamedOptions& options = {});
  Work reduce_scatter(const std::string& name, BufferView in, BufferView out,
                      std::vector<uint64_t> counts = {}, const NamedOptions& options = {});
  Work all_gather(const std::string& name, BufferView in, Gathered& gathered,
                  const NamedOptions& options = {});
  Work broadcast(const std::string& name, BufferView data, int root,
                 const NamedOptions& options = {});
  Work all_to_all(const std::string& name, BufferView in, std::vector<uint64_t> sends,
                  BufferView out, std::vector<uint64_t> receives, const NamedOptions& options = {});
  Work barrier(const std::string& name, const NamedOptions& options = {});

  // Blocking, on this thread if nothing is queued.
  void run_all_reduce(const std::string& name, BufferView data, const NamedOptions& options = {});

  // All ranks, the same: what every step brings, in the order in which it becomes ready. Tensors
  // whose bytes lie in the views are reduced in place, without a copy. Where the device of a spec
  // is one, its bucket lies there.
  BucketMemory allocate_buckets(const std::vector<TensorSpec>& specs);

  // Takes part with nothing until all ranks of the set have joined; the last one that did.
  int join(int set = 0);

  // All ranks, in the same order: a set of ranks that operate among themselves. Its number is the
  // same everywhere; operations on it are for its members.
  int add_process_set(const std::vector<int>& ranks);
  // All ranks. Nothing may be in flight on it. False if there is no such set (or it is 0).
  bool remove_process_set(int set);
  std::vector<int> process_set(int set) const;

  RuntimeCounters counters() const;

  // All ranks: from now on each writes what it does to `path`.RANK; `horon trace merge` makes one
  // file of them. Stopping is each rank's own; the destructor does it, too.
  void start_timeline(const std::string& path);
  void stop_timeline() { recorder_->stop_timeline(); }
  // The last operations of this rank, for people.
  std::string describe_last() const { return recorder_->describe(); }
  // The same into a file of its own in flight_folder; says where through warn. Nothing without a
  // folder.
  void dump_last() const;

 private:
  struct Set {
    std::vector<int> ranks;
    std::shared_ptr<Lane> bulk;           // null: we are not in it
    std::shared_ptr<Lane> urgent;         // what has a priority
    std::shared_ptr<Communicator> plain;  // what has no name
  };
  std::optional<LongWait> longest_wait() const;
  RankState own_state() const;
  void begin_tuning();
  void keep_tuning(const Tuning& found) const;
  std::shared_ptr<Set> make_set(const std::vector<int>& ranks);
  std::shared_ptr<Set> find_set(int set) const;
  Work submit(const std::string& name, Request request, const NamedOptions& options, bool blocks,
              uint64_t layout = 0);

  std::unique_ptr<Communicator> world_;
  RuntimeOptions options_;
  std::shared_ptr<Recorder> recorder_;
  mutable std::mutex mutex_;  // guards the two below
  std::map<int, std::shared_ptr<Set>> sets_;
  int next_set_ = 0;
  std::vector<uint64_t> tries_;            // for the lanes that are made
  std::unique_ptr<StallMonitor> monitor_;  // last: uses all the others
};

}  // namespace horon
