#pragma once

#include <functional>
#include <string>
#include <vector>

#include "horon/comm/types.h"

namespace horon {

class ExactSum;

// One operation as a value: created by the functions below, run by Communicator::run (blocking) or
// Communicator::start (asynchronous). Buffers must stay valid until the operation has ended.
//
//   comm.run(Request::broadcast(view_of(weights), 0));
//   const Work work = comm.start(Request::all_reduce(view_of(sums), {.name = "sums"}));
struct Request {
  OpKind kind = OpKind::kBarrier;
  BufferView in = {};
  BufferView out = {};
  ReduceOp op = ReduceOp::kSum;
  Reduction reduction = Reduction::kFast;
  int root = 0;
  std::vector<uint64_t> counts = {};    // reduce_scatter: per rank; all_to_all: sent to each rank
  std::vector<uint64_t> receives = {};  // all_to_all: expected from each rank
  const ExactSum* exact = nullptr;      // all_reduce of an exact sum
  Gathered* gathered = nullptr;  // all_gather, all_to_all into memory that the operation allocates
  int* last_joined = nullptr;    // join
  std::vector<Request> items = {};  // group
  std::string name = {};
  Milliseconds timeout{0};
  // For the runtime: called on the thread that runs the operation, before the buffers are read and
  // when the result is available. May be null. Device memory of a request with `ready` may be read
  // after that call; without it, after what is in the device's default stream when the request is
  // run.
  std::function<void()> ready = {};
  std::function<void()> done = {};

  // data := reduction over all ranks, in place.
  static Request all_reduce(BufferView data, const ReduceOptions& options = {});
  // out := the exact sum over all ranks of the contributions in `sum`. op: kSum or kAverage (over
  // shards).
  static Request all_reduce(const ExactSum& sum, BufferView out, const ReduceOptions& options = {});
  // out := this rank's segment of the reduction; segments have counts[r] elements, in rank order;
  // without counts as even as possible, the first ranks get one more.
  static Request reduce_scatter(BufferView in, BufferView out, std::vector<uint64_t> counts = {},
                                const ReduceOptions& options = {});
  // out := the inputs of all ranks, in order; their sizes may differ.
  static Request all_gather(BufferView in, BufferView out, const OpOptions& options = {});
  // The same into new memory from the communicator's heap; `gathered` must outlive the operation.
  static Request all_gather(BufferView in, Gathered& gathered, const OpOptions& options = {});
  static Request broadcast(BufferView data, int root, const OpOptions& options = {});
  // Sends sends[r] elements to rank r and receives receives[r] from it; both in rank order.
  static Request all_to_all(BufferView in, std::vector<uint64_t> sends, BufferView out,
                            std::vector<uint64_t> receives, const OpOptions& options = {});
  // The same into new memory, receiving whatever the others send: out.counts[r] elements from rank
  // r.
  static Request all_to_all(BufferView in, std::vector<uint64_t> sends, Gathered& gathered,
                            const OpOptions& options = {});
  static Request barrier(const OpOptions& options = {});
  // Several operations with one agreement: either all are executed or none.
  static Request group(std::vector<Request> items, const OpOptions& options = {});
  // Contributes nothing to the others' operations until all ranks have joined; *last_joined is then
  // the last rank that did.
  static Request join(int& last_joined, const OpOptions& options = {});
};

// Checks the request by itself, without the other ranks; the error text, or empty.
std::string check_request(const Request& request, int rank, int size);

// Even split of `total` over `size` ranks.
std::vector<uint64_t> even_counts(uint64_t total, int size);

}  // namespace horon
