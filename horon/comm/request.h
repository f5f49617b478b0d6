#pragma once

#include <functional>
#include <string>
#include <vector>

#include "horon/comm/types.h"

namespace horon {

class ExactSum;

// One operation as a value: made by the functions below, run by Communicator::run (blocking) or
// Communicator::start (asynchronous). Buffers must stay valid until the operation is over.
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
  Gathered* gathered = nullptr;         // all_gather, all_to_all into memory made by the operation
  int* last_joined = nullptr;           // join
  std::vector<Request> items = {};      // group
  std::string name = {};
  Milliseconds timeout{0};
  // For whoever runs it on behalf of others (runtime): called on the thread that does, before the
  // buffers are read and when the result is there. May be null.
  std::function<void()> ready = {};
  std::function<void()> done = {};

  // data := reduction over all ranks, in place.
  static Request all_reduce(BufferView data, const ReduceOptions& options = {});
  // out := the exact sum over all ranks of what they put into `sum`. op: kSum or kAverage (over
  // shards).
  static Request all_reduce(const ExactSum& sum, BufferView out, const ReduceOptions& options = {});
  // out := this rank's segment of the reduction; segments of counts[r] elements, in order of rank;
  // no counts: as even as possible, the first ranks one more.
  static Request reduce_scatter(BufferView in, BufferView out, std::vector<uint64_t> counts = {},
                                const ReduceOptions& options = {});
  // out := the inputs of all ranks, in order; their sizes may differ.
  static Request all_gather(BufferView in, BufferView out, const OpOptions& options = {});
  // The same into new memory from the communicator's heap; `gathered` must outlive the operation.
  static Request all_gather(BufferView in, Gathered& gathered, const OpOptions& options = {});
  static Request broadcast(BufferView data, int root, const OpOptions& options = {});
  // sends[r] elements go to rank r, receives[r] come from it; both in order of rank.
  static Request all_to_all(BufferView in, std::vector<uint64_t> sends, BufferView out,
                            std::vector<uint64_t> receives, const OpOptions& options = {});
  // The same, and as much is received as the others send, into new memory; out.counts[r] of rank r.
  static Request all_to_all(BufferView in, std::vector<uint64_t> sends, Gathered& gathered,
                            const OpOptions& options = {});
  static Request barrier(const OpOptions& options = {});
  // Several operations under one agreement: all of them happen, or none.
  static Request group(std::vector<Request> items, const OpOptions& options = {});
  // Takes part with nothing in whatever the others do, until all have joined; *last_joined is then
  // the rank that was last.
  static Request join(int& last_joined, const OpOptions& options = {});
};

// What is wrong with the request whatever the others ask for; empty: nothing.
std::string check_request(const Request& request, int rank, int size);

// Even split of `total` over `size` ranks.
std::vector<uint64_t> even_counts(uint64_t total, int size);

}  // namespace horon
