#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "horon/comm/algorithm.h"
#include "horon/comm/exact_sum.h"
#include "horon/comm/request.h"
#include "horon/comm/topology.h"
#include "horon/comm/work.h"

namespace horon {

class Backend;
class Store;

// Collectives over a set of ranks: the whole job or a part of it. Any thread may call. Operations
// of one communicator run one after the other, in the order of the calls, which must be the same on
// all its ranks. Operations of different communicators are independent.
//   Communicator& comm = session.world();
//   comm.all_reduce(view_of(gradients), {.op = ReduceOp::kAverage, .name = "fc.weight"});
//
// Errors: UsageError, the same on every rank, if ranks request different operations; nothing was
// changed and the communicator stays usable. PeerLostError and TimeoutError name the ranks; all
// communicators of the job are then dead and say so, buffers of the operation are undefined, and
// heap memory is never used again: create a new communicator.
class Communicator {
 public:
  // Queued operations end with an Error; one that waits for other ranks is abandoned after two
  // seconds, and those ranks are notified.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;
  int size() const;
  const Topology& topology() const;         // of the whole job
  const std::vector<int>& members() const;  // ranks of the job, in order
  std::string backend() const;
  DeviceRuntime* device() const;  // null: host memory only
  // Whether run() copies the request's device memory to the host and back, because no row of
  // algorithms() moves it in place.
  bool stages(const Request& request) const;
  // The store where the ranks met, with this communicator's key prefix; null if they met without
  // one.
  std::shared_ptr<Store> store() const;

  // Runs any operation (request.h), blocking or asynchronous.
  void run(const Request& request);
  Work start(Request request);
  // For plans: run(), unless a rank calls deviate() instead. Then no data has moved, and all ranks
  // get false.
  bool run_unless_deviated(const Request& request);
  void deviate(const OpOptions& options = {});

  // The operations below are blocking forms of Request's functions of the same name (request.h),
  // where they are described.
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
  // Returns new memory from the heap with the inputs of all ranks, and each rank's count.
  Gathered all_gather(BufferView in, const OpOptions& options = {});
  void broadcast(BufferView data, int root, const OpOptions& options = {}) {
    run(Request::broadcast(data, root, options));
  }
  void all_to_all(BufferView in, std::vector<uint64_t> sends, BufferView out,
                  std::vector<uint64_t> receives, const OpOptions& options = {}) {
    run(Request::all_to_all(in, std::move(sends), out, std::move(receives), options));
  }
  void barrier(const OpOptions& options = {}) { run(Request::barrier(options)); }
  // Contributes nothing to the other ranks' operations until all ranks have joined; returns the
  // last rank that joined.
  int join(const OpOptions& options = {});

  // A communicator for some of our ranks (numbers in this communicator, in any order); null on
  // ranks that are not listed. All listed ranks must call it, in the same order as other calls with
  // the same ranks; sends no message.
  std::unique_ptr<Communicator> sub_communicator(std::vector<int> ranks);

  // Memory that peers access without a copy: all-reduced in place over shared memory. On a dead
  // communicator throws the error that ended it, as does an exact sum that needs memory.
  OwnedBuffer allocate(uint64_t count, DType dtype);
  // An exact sum whose arrays are in that memory.
  ExactSum exact_sum(uint64_t count, DType dtype, uint64_t shards);

  // Called for every operation of this communicator (not of its sub-communicators), on the thread
  // that runs it. Set it before the first operation.
  struct Watch {
    std::function<void(const Request& request)> begins;
    std::function<void(const Request& request, bool failed)> ends;
  };
  void watch(Watch watch);

  // The rows that the backend published, and the row used by the last operation (of a group: by its
  // last); null if it moved no data.
  const std::vector<AlgorithmRow>& algorithms() const;
  const AlgorithmRow* chosen() const;

  // Processor time that this rank has spent with the encryption of its connections.
  double seconds_encrypting() const;
  // Total microseconds that each member has spent between operations: a straggler's number grows
  // fastest. Updated by each operation.
  std::vector<uint64_t> away_us() const;
  // Reports from outside that these ranks (of the job) do not answer: operations in flight end with
  // TimeoutError naming them, on all ranks.
  void give_up_on(const std::vector<int>& ranks);
  // Ends operations that wait here, and tells the other ranks that this rank has left; for closing.
  void leave();

  // Why this communicator is dead; empty while it works.
  std::string dead_reason() const;

  struct Settings {
    Milliseconds timeout{30000};
    std::string algorithm;
    std::shared_ptr<DeviceRuntime> device;
    std::function<void()> on_failure = {};  // called (also repeatedly) when the job is dead
    std::shared_ptr<Store> store = {};
  };
  // For bootstrap: the communicator of all ranks of `backend`.
  Communicator(const std::shared_ptr<Backend>& backend, Topology topology, Settings settings);

 private:
  struct Job;  // shared by a communicator and its sub-communicators
  struct State;
  explicit Communicator(std::shared_ptr<Job> job, std::vector<int> members);
  std::unique_ptr<State> state_;
};

}  // namespace horon
