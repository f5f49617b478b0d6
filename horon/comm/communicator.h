#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "horon/comm/exact_sum.h"
#include "horon/comm/request.h"
#include "horon/comm/select.h"
#include "horon/comm/topology.h"
#include "horon/comm/work.h"

namespace horon {

class Backend;
class Store;

// A group of ranks that act together: the whole job, or a part of it. Any thread may call;
// operations of one communicator happen one after the other, in the order of the calls, which must
// be the same on all its ranks. Operations of different groups are independent.
//
// Errors: UsageError, the same on every rank, when ranks ask for different things; nothing was
// touched and the communicator works on. PeerLostError and TimeoutError name the ranks; all
// communicators of the job are then dead and say so, buffers of the operation are undefined, and
// heap memory is never used again: make a new communicator.
class Communicator {
 public:
  // Operations that have not begun end with an Error; one that waits for other ranks is given up
  // after two seconds, and they learn of it.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  const Topology& topology() const;         // of the whole job
  const std::vector<int>& members() const;  // ranks of the job, in order
  std::string backend() const;
  DeviceRuntime* device() const;  // null: host memory only
  // This communicator's own corner of the store where its ranks met; null: they met without one.
  std::shared_ptr<Store> store() const;

  // Any operation (request.h), blocking or not.
  void run(const Request& request);
  Work start(Request request);
  // For plans that are made once: run() unless a rank calls deviate() in its place. Then nothing
  // has moved, and all ranks get false.
  bool run_unless_deviated(const Request& request);
  void deviate(const OpOptions& options = {});

  void all_reduce(BufferView data, const ReduceOptions& options = {}) {
    run(Request::all_reduce(data, options));
  }
  void all_reduce(const ExactSum& sum, BufferView out, const ReduceOptions& options = {}) {
    run(Request::all_reduce(sum, out, options));
  }
  void reduce_scatter(BufferView in, BufferView out, std::vector<uint64_t> counts = {},
                      const ReduceOptions& options = {}) {
    run(Request::reduce_scatter(in, out, std::move(counts), options));
  }
  void all_gather(BufferView in, BufferView out, const OpOptions& options = {}) {
    run(Request::all_gather(in, out, options));
  }
  Gathered all_gather(BufferView in, const OpOptions& options = {});
  void broadcast(BufferView data, int root, const OpOptions& options = {}) {
    run(Request::broadcast(data, root, options));
  }
  void all_to_all(BufferView in, std::vector<uint64_t> sends, BufferView out,
                  std::vector<uint64_t> receives, const OpOptions& options = {}) {
    run(Request::all_to_all(in, std::move(sends), out, std::move(receives), options));
  }
  void barrier(const OpOptions& options = {}) { run(Request::barrier(options)); }
  // Returns the rank that was last to join.
  int join(const OpOptions& options = {});

  // A view for some of our ranks (numbers in this communicator, sorted or not, with or without us
  // on ranks that are not in it: those get null). Called by all that are in it, in the same order
  // as other groups of the same ranks; sends nothing.
  std::unique_ptr<Communicator> group(std::vector<int> ranks);

  // Memory that peers reach without a copy: all-reduced in place over shared memory. On a dead
  // communicator: the error that killed it, here and when an exact sum needs memory.
  OwnedBuffer allocate(uint64_t count, DType dtype);
  // An exact sum whose arrays live in that memory.
  ExactSum exact_sum(uint64_t count, DType dtype, uint64_t shards);

  // Told of every operation of this communicator (not of its groups), on the thread that runs it.
  // Set before the first one.
  struct Watch {
    std::function<void(const Request& request)> begins;
    std::function<void(const Request& request, bool failed)> ends;
  };
  void watch(Watch watch);

  // What the backend published, and the row by which the last operation (of a group: its last)
  // went; null if it moved nothing.
  const std::vector<AlgorithmRow>& algorithms() const;
  const AlgorithmRow* chosen() const;

  // Microseconds that each member has spent between operations, in all: a straggler's number grows
  // fastest. As of the last operation.
  std::vector<uint64_t> away_us() const;
  // Something outside knows that these ranks (of the job) do not answer: operations in flight end
  // with TimeoutError naming them, here and on the other ranks.
  void give_up_on(const std::vector<int>& ranks);
  // For closing while something waits: it ends here, and the others learn that this rank has left.
  void leave();

  // Empty while everything works.
  std::string dead_reason() const;

  struct Settings {
    Milliseconds timeout{30000};
    std::string algorithm;
    std::shared_ptr<DeviceRuntime> device;
    std::function<void()> on_failure = {};  // the job is dead; may be null, may be called again
    std::shared_ptr<Store> store = {};
  };
  // Used by bootstrap: the communicator of all ranks of `backend`.
  Communicator(const std::shared_ptr<Backend>& backend, Topology topology, Settings settings);

 private:
  struct Job;  // shared by a communicator and its groups
  struct State;
  explicit Communicator(std::shared_ptr<Job> job, std::vector<int> members);
  std::unique_ptr<State> state_;
};

}  // namespace horon
