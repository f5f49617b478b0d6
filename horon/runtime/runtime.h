#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "horon/base/job_settings.h"
#include "horon/base/log.h"
#include "horon/comm/communicator.h"
#include "horon/runtime/codec_state.h"
#include "horon/runtime/counters.h"
#include "horon/runtime/plan.h"
#include "horon/runtime/stall.h"

namespace horon {

class Lane;
class Ledger;
class Recorder;
struct Tuning;

// Options of one named operation. Equal on all ranks, except ready and done.
struct NamedOptions {
  ReduceOp op = ReduceOp::kSum;
  Reduction reduction = Reduction::kFast;
  double prescale = 1.0;   // factor on the input
  double postscale = 1.0;  // factor on the output
  // An urgent operation overtakes those that are not, even between chunks of a transfer, from the
  // second use of its name on.
  int priority = 0;        // above 0: urgent
  int set = 0;             // process set; 0: all ranks
  std::string codec = {};  // f32 all-reduce (sum, average): compresses the transfer (codec/codec.h)
  uint64_t tag = 0;  // anything else that must be equal on all ranks, e.g. the hash of a shape
  // Averages are over all ranks of the set; otherwise over the contributing ranks, which are fewer
  // while others have joined.
  bool over_members = false;
  // Callbacks of this rank, called on the thread that runs the operation: before its input is read,
  // and when its result is available but the Work has not ended. They must not wait for operations.
  // May be null.
  std::function<void()> ready = {};
  std::function<void()> done = {};
  // For codecs that depend on it: the optimizer step that this belongs to. The caller counts and
  // saves it with the weights, so it is right after a resume, for ranks that start later, and for
  // tensors that do not occur in every step.
  std::optional<uint64_t> step = {};
};

// Options of a Runtime. `chunk_bytes` and `limits` equal on all ranks.
struct RuntimeOptions {
  PlanLimits limits;
  uint64_t chunk_bytes =
      16U << 20;  // larger transfers are split so that urgent ones can overtake; 0: never

  Milliseconds timeout{600'000};  // longest wait for ranks that are alive but late
  // Shared by all ranks. With a store, long waits are explained and silent ranks end them. May be
  // null.
  std::shared_ptr<Store> store;
  StallMonitor::Options stall;
  LogLevel log_level = LogLevel::kWarn;
  std::function<void(const std::string& line)> warn;  // default: the log
  std::string timeline;       // path: start_timeline() in the constructor; empty: none
  std::string flight_folder;  // receives the last operations after an error; empty: none
  int codec_threads = 0;      // 0: the cores of this rank, at most 4
  CodecRegistry codecs;       // add your own; equal on all ranks
  // Tries bucket sizes and codec threads in the first steps and stores the best in this file for
  // the next run. Not for declared tensors, whose memory is already in use. Empty: off.
  std::string autotune_file;
};

// Options from the settings of the job: buckets, stall times, log level, files.
RuntimeOptions runtime_options(const JobSettings& job_settings);

// Memory for the buckets of declared tensors, and the view of each tensor in it. Owned by the
// caller.
struct BucketMemory {
  std::vector<OwnedBuffer> buckets;
  std::vector<BufferView> views;  // one per tensor, in the order of declaration
};

// Asynchronous named operations. Ranks may submit them in any order: the first time they agree on
// an order; a step that repeats runs with no negotiation messages, in buckets (plan.h).
//
//   horon::Runtime& runtime = session.runtime();
//   runtime.all_reduce("loss", horon::view_of(losses), {.op = horon::ReduceOp::kAverage}).wait();
//
// Thread-safe, unless a method says otherwise. Buffers stay valid until the Work ends. A name is in
// flight once at a time. Unnamed operations ("") run in the order of their calls, which must be the
// same on all ranks, as do those on world(). Long waits for them are explained, traced and counted
// like the others; they never overtake each other, so their priority has no effect and may differ.
//
// Errors: as Communicator's. A mismatch is the same UsageError on every rank, and the runtime
// continues. After PeerLostError or TimeoutError make a new communicator and rebind(), or make a
// new runtime.
//
// A facade: it finds the process set and the lane (lane.h). Its own logic is what concerns all
// lanes: process sets, rebind(), tuning, and comparing what ranks must have in common.
class Runtime {
 public:
  // `world` is owned by the runtime. All ranks of it make one.
  explicit Runtime(std::unique_ptr<Communicator> world, const RuntimeOptions& options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int rank() const;
  int size() const;
  Communicator& world() const { return *world_; }

  Work all_reduce(const std::string& name, BufferView data, const NamedOptions& options = {});
  // Reads `in` and writes `out`, which has the same size.
  Work all_reduce(const std::string& name, BufferView in, BufferView out,
                  const NamedOptions& options = {});
  // Several tensors under one name: all of them run or none.
  Work all_reduce(const std::string& name, const std::vector<BufferView>& parts,
                  const NamedOptions& options = {});
  // The same for operations of any kind except all-to-all; `options` has the reductions and
  // factors.
  Work group(const std::string& name, std::vector<Request> items, const NamedOptions& options = {});
  Work all_reduce(const std::string& name, const ExactSum& sum, BufferView out,
                  const NamedOptions& options = {});
  // Operations with an `in` do not change it, even with a prescale.
  Work reduce_scatter(const std::string& name, BufferView in, BufferView out,
                      std::vector<uint64_t> counts = {}, const NamedOptions& options = {});
  Work all_gather(const std::string& name, BufferView in, Gathered& gathered,
                  const NamedOptions& options = {});
  Work all_gather(const std::string& name, BufferView in, BufferView out,
                  const NamedOptions& options = {});
  Work broadcast(const std::string& name, BufferView data, int root,
                 const NamedOptions& options = {});
  // `in` is read only on the root.
  Work broadcast(const std::string& name, BufferView in, BufferView out, int root,
                 const NamedOptions& options = {});
  Work all_to_all(const std::string& name, BufferView in, std::vector<uint64_t> sends,
                  BufferView out, std::vector<uint64_t> receives, const NamedOptions& options = {});
  // The sizes to receive are those that the other ranks send.
  Work all_to_all(const std::string& name, BufferView in, std::vector<uint64_t> sends,
                  Gathered& gathered, const NamedOptions& options = {});
  Work barrier(const std::string& name, const NamedOptions& options = {});

  // Blocks; runs on the calling thread if nothing is queued.
  void run_all_reduce(const std::string& name, BufferView data, const NamedOptions& options = {});

  // Withdraws an operation of this rank that has not begun; its Work ends with an Error and its
  // name is free. False if it runs or has ended. Other ranks are not told: operations that they
  // submitted under this name wait until it is submitted again.
  bool withdraw(const std::string& name, int set = 0);

  // Declares the tensors of every step, in the order in which they become ready; all ranks pass the
  // same list. Tensors whose bytes lie in the views are reduced in place, without a copy. A bucket
  // lies on the device of its specs; urgent tensors have buckets of their own.
  BucketMemory allocate_buckets(const std::vector<TensorSpec>& specs);
  // The spec of a tensor that will be all-reduced with these options.
  TensorSpec declared_spec(const std::string& name, BufferView like,
                           const NamedOptions& options) const;

  // Continues over another communicator, after a failure or when ranks are lost or added. All ranks
  // of `next` call it; new ranks make a Runtime and declare the same tensors instead
  // (allocate_buckets, with an empty list if there are none). Operations in flight end with an
  // Error; no other thread may call meanwhile. Names and their order are kept: if all ranks know
  // the same ones, no agreement is needed. Declared tensors get new memory, in the order of
  // declaration; the old memory stays valid while it is owned but is no longer reduced. All process
  // sets except 0 are removed, and the next one is number 1 again. Counters continue.
  BucketMemory rebind(std::unique_ptr<Communicator> next, const RuntimeOptions& options);

  // Contributes nothing to the operations of the set until all its ranks have joined. Returns the
  // rank that joined last. Set 0 includes operations on world(). Nothing of this rank may be in
  // flight in the set. Tensors that were not declared are agreed on again afterwards.
  int join(int set = 0);

  // Makes a set of ranks with operations of their own. All ranks call it in the same order; its
  // number is the same on all. Only members may use it. UsageError on all ranks if the lists differ
  // or a rank has joined.
  int add_process_set(const std::vector<int>& ranks);
  // All ranks, with the same set; nothing may be in flight on it. False if it does not exist or is
  // 0.
  bool remove_process_set(int set);
  std::vector<int> process_set(int set) const;
  std::vector<int> process_sets() const;  // their numbers

  // The codec state of this rank for the tensors of the set (codec_state.h): save it with the
  // weights and restore it in a later runtime before its first step. Nothing of the set may be in
  // flight. Empty if no codec keeps any.
  CodecStates save_codec_state(int set = 0) const;
  // Replaces the codec state. Error (exit code 13) for damaged bytes; then nothing has changed. A
  // tensor that is later submitted with another codec or size is a UsageError (exit code 13).
  void restore_codec_state(const CodecStates& states, int set = 0);

  RuntimeCounters counters() const;

  // Starts writing operations to `path`.RANK; `horon trace merge` combines the files. All ranks
  // call start_timeline(); each may stop by itself, and the destructor stops, too.
  void start_timeline(const std::string& path);
  void stop_timeline();
  // The last operations of this rank, as text.
  std::string describe_last() const;
  // Writes describe_last() to a file of its own in flight_folder and reports the path through warn.
  // Does nothing without a folder.
  void dump_last() const;

 private:
  struct Set;       // process_set.h
  struct Heirloom;  // what rebind() takes from one communicator to the next
  void attach(std::unique_ptr<Communicator> world, const RuntimeOptions& options,
              const Heirloom* heirloom);
  BucketMemory declare(Set& set, const std::vector<TensorSpec>& specs, bool& kept);
  std::optional<LongWait> longest_wait() const;
  RankState own_state() const;
  void begin_tuning();
  void keep_tuning(const Tuning& found) const;
  std::shared_ptr<Set> make_set(const std::vector<int>& ranks, const Heirloom* heirloom = nullptr);
  std::shared_ptr<Lane> make_lane(const std::shared_ptr<Set>& set, bool urgent,
                                  const Heirloom* heirloom);
  std::vector<int64_t> compare(const std::string& doing, std::vector<int64_t> mine) const;
  std::shared_ptr<Set> find_set(int set) const;
  NamedOptions resolve(const NamedOptions& given) const;
  Work submit(const std::string& name, Request request, const NamedOptions& options, bool blocks,
              const std::string& layout = {});

  std::unique_ptr<Communicator> world_;
  RuntimeOptions options_;
  std::unique_ptr<Heirloom> heirloom_;
  std::shared_ptr<Recorder> recorder_;
  std::unique_ptr<Ledger> world_ledger_;
  mutable std::mutex mutex_;  // guards the two below
  std::map<int, std::shared_ptr<Set>> sets_;
  int next_set_ = 0;
  std::vector<TensorSpec> declared_;       // in the caller's order
  RuntimeCounters past_;                   // of earlier communicators
  std::vector<uint64_t> tries_;            // bucket sizes to try in new lanes
  std::unique_ptr<StallMonitor> monitor_;  // last: uses all other members
};

}  // namespace horon
