#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "horon/base/knob.h"
#include "horon/comm/communicator.h"
#include "horon/runtime/lane.h"
#include "horon/runtime/sequence.h"
#include "horon/runtime/stall.h"

namespace horon {

// How an operation is to be done. Must be equal on all ranks.
struct NamedOptions {
  ReduceOp op = ReduceOp::kSum;
  Reduction reduction = Reduction::kFast;
  double prescale = 1.0;   // factor on what goes in
  double postscale = 1.0;  // factor on what comes out
  int priority = 0;        // above 0: urgent. Overtakes what is not, even between chunks of a
                           // transfer, from the second time on that the name comes
  int set = 0;             // process set; 0: all ranks
  std::string codec = {};  // f32 all-reduce, sum or average: what travels instead (codec/codec.h)
  uint64_t tag = 0;        // whatever else must be equal on all ranks: a hash of a shape, ...
  // Averages are over all ranks of the set; else over those that contribute, which are fewer while
  // others have joined.
  bool over_members = false;
  // Of each rank's own: called on the thread that runs the operation, before its input is read and
  // when its result is there, before the Work is over. They must not wait for operations. May be
  // null.
  std::function<void()> ready = {};
  std::function<void()> done = {};
  // For codecs that go by it: which step of the optimizer this is a part of. It is the caller's,
  // who keeps it with the weights: so it survives a resume, is right for a rank that comes later,
  // and for tensors that do not come in every step; a count of ours would be none of that.
  std::optional<uint64_t> step = {};
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
  std::string timeline;       // path: start_timeline() from the beginning; empty: no
  std::string flight_folder;  // for the last operations after an error; empty: nowhere
  int codec_threads = 0;      // 0: as many as there are cores for this rank, at most 4
  CodecRegistry codecs;       // one's own are added here; equal on all ranks
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
// ("") run in the order of their calls, which must be the same on all ranks, as do those on
// world(); waits for them are explained, traced and counted like the others. Nothing overtakes
// among them, so their priority means nothing, and ranks need not agree on it.
//
// Errors: as Communicator's; every mismatch is the same UsageError on every rank, and the runtime
// works on. After PeerLostError or TimeoutError make a new communicator, and rebind() or make a new
// runtime.
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
  // The same from one place to another of the same size.
  Work all_reduce(const std::string& name, BufferView in, BufferView out,
                  const NamedOptions& options = {});
  // All of them or none, under one name.
  Work all_reduce(const std::string& name, const std::vector<BufferView>& parts,
                  const NamedOptions& options = {});
  // The same for operations of any kind but all-to-all; reductions and factors as options say.
  Work group(const std::string& name, std::vector<Request> items, const NamedOptions& options = {});
  Work all_reduce(const std::string& name, const ExactSum& sum, BufferView out,
                  const NamedOptions& options = {});
  // Where there is an `in`, it is not changed, prescale or not.
  Work reduce_scatter(const std::string& name, BufferView in, BufferView out,
                      std::vector<uint64_t> counts = {}, const NamedOptions& options = {});
  Work all_gather(const std::string& name, BufferView in, Gathered& gathered,
                  const NamedOptions& options = {});
  Work all_gather(const std::string& name, BufferView in, BufferView out,
                  const NamedOptions& options = {});
  Work broadcast(const std::string& name, BufferView data, int root,
                 const NamedOptions& options = {});
  // `in` is read on the root.
  Work broadcast(const std::string& name, BufferView in, BufferView out, int root,
                 const NamedOptions& options = {});
  Work all_to_all(const std::string& name, BufferView in, std::vector<uint64_t> sends,
                  BufferView out, std::vector<uint64_t> receives, const NamedOptions& options = {});
  // As much is received as the others send.
  Work all_to_all(const std::string& name, BufferView in, std::vector<uint64_t> sends,
                  Gathered& gathered, const NamedOptions& options = {});
  Work barrier(const std::string& name, const NamedOptions& options = {});

  // Blocking, on this thread if nothing is queued.
  void run_all_reduce(const std::string& name, BufferView data, const NamedOptions& options = {});

  // All ranks, the same: what every step brings, in the order in which it becomes ready. Tensors
  // whose bytes lie in the views are reduced in place, without a copy. Where the device of a spec
  // is one, its bucket lies there; urgent ones have buckets of their own.
  BucketMemory allocate_buckets(const std::vector<TensorSpec>& specs);
  // The spec of a tensor that will be all-reduced with these options.
  TensorSpec declared_spec(const std::string& name, BufferView like,
                           const NamedOptions& options) const;

  // Goes on over another communicator: after a failure, or when ranks come and go. All ranks of
  // `next`; newcomers make a Runtime and declare the same (allocate_buckets, of nothing if nothing
  // is declared) instead. What is in flight ends with an Error; nobody else may call meanwhile.
  // Names and their order are kept: if all ranks know the same ones, nothing has to be agreed on
  // again. Declared tensors get memory anew, in the order in which they were declared; that of
  // before stays valid until it is let go, but nothing is reduced there any more. Other process
  // sets than 0 are gone, and the next one is number 1 again. Counters go on.
  BucketMemory rebind(std::unique_ptr<Communicator> next, const RuntimeOptions& options);

  // Takes part with nothing, in whatever the others do there, until all ranks of the set have
  // joined; the last one that did. With set 0 that includes operations on world(). Nothing of ours
  // may be in flight in the set. Tensors that were not declared are agreed on anew afterwards.
  int join(int set = 0);

  // All ranks, in the same order: a set of ranks that operate among themselves. Its number is the
  // same everywhere; operations on it are for its members. UsageError on all if they name different
  // ranks, or if one has joined.
  int add_process_set(const std::vector<int>& ranks);
  // All ranks, the same set. Nothing may be in flight on it. False if there is none (or it is 0).
  bool remove_process_set(int set);
  std::vector<int> process_set(int set) const;
  std::vector<int> process_sets() const;  // their numbers

  // What codecs keep on this rank for the tensors of the set (codec_state.h): to be kept with the
  // weights, and given to a later runtime before its first step. Nothing of the set may be in
  // flight. Empty if no codec keeps anything.
  CodecStates save_codec_state(int set = 0) const;
  // Instead of what is there. Error (exit code 13) for damaged bytes: then nothing has changed. A
  // tensor that then comes with another codec or size is a UsageError (13).
  void restore_codec_state(const CodecStates& states, int set = 0);

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
    std::shared_ptr<Lane> bulk;                    // null: we are not in it
    std::shared_ptr<Lane> urgent;                  // what has a priority
    std::shared_ptr<Sequence> unnamed;             // what has no name
    std::shared_ptr<CodecMemory> codec_memory;     // of the three
    std::mutex mutex;                              // guards the two below
    std::unordered_set<std::string> urgent_names;  // on which the ranks have agreed
    std::unordered_set<std::string> declared_urgent;
    Lane& lane_of(const std::string& name);
    void note_class(const TensorSpec& spec);
  };
  struct Heirloom {  // of what ran over one communicator for what runs over the next
    Plan bulk{PlanLimits{}};
    Plan urgent{PlanLimits{}};
    std::unordered_set<std::string> urgent_names;
    std::shared_ptr<CodecMemory> codec_memory;
  };
  void attach(std::unique_ptr<Communicator> world, const RuntimeOptions& options,
              const Heirloom* heirloom);
  BucketMemory declare(Set& set, const std::vector<TensorSpec>& specs, bool& kept);
  std::optional<LongWait> longest_wait() const;
  RankState own_state() const;
  void begin_tuning();
  void keep_tuning(const Tuning& found) const;
  std::shared_ptr<Set> make_set(const std::vector<int>& ranks, const Heirloom* heirloom = nullptr);
  std::shared_ptr<Lane> make_lane(const std::shared_ptr<Set>& set, bool urgent,
                                  const Mover::Options& moves, const Heirloom* heirloom);
  std::vector<int64_t> compare(const std::string& doing, std::vector<int64_t> mine) const;
  std::shared_ptr<Set> find_set(int set) const;
  NamedOptions resolve(const NamedOptions& given) const;
  Work submit(const std::string& name, Request request, const NamedOptions& options, bool blocks,
              const std::string& layout = {});

  std::unique_ptr<Communicator> world_;
  RuntimeOptions options_;
  Heirloom heirloom_;
  std::shared_ptr<Recorder> recorder_;
  std::unique_ptr<Ledger> world_ledger_;
  mutable std::mutex mutex_;  // guards the two below
  std::map<int, std::shared_ptr<Set>> sets_;
  int next_set_ = 0;
  std::vector<TensorSpec> declared_;       // in the caller's order
  RuntimeCounters past_;                   // of what ran over earlier communicators
  std::vector<uint64_t> tries_;            // for the lanes that are made
  std::unique_ptr<StallMonitor> monitor_;  // last: uses all the others
};

}  // namespace horon
