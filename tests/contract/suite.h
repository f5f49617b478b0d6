#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horon/comm/communicator.h"

// What every backend promises, as a list of checks that all ranks run together. A check throws
// std::runtime_error with a reason. `horon_contract_rank` runs it in processes, communicator_test
// in threads.
namespace horon::contract {

struct Context {
  Communicator& comm;
  std::shared_ptr<DeviceRuntime> device;  // set: buffers live on the GPU
};

struct Check {
  std::string name;
  std::function<void(Context&)> body;
};

// Sums, averages, minima, ... of all types and many sizes; segments; gathers; broadcasts;
// transposes.
std::vector<Check> operation_checks();
// The backend's table of algorithms: as printed, and every row that applies to this number of
// ranks.
std::vector<Check> algorithm_checks();
// With this row as the override: it is used and gives the expected results. Host memory.
void check_override(Context& context, const AlgorithmRow& row);
// Groups of operations, join, sub-communicators, asynchrony, mismatches, exact_checks() and
// algorithm_checks().
std::vector<Check> behaviour_checks();
// Exact sums of all types and ways to hold them.
std::vector<Check> exact_checks();
// Named operations through the runtime.
std::vector<Check> runtime_checks();
// One operation of each kind above 2^31 bytes; for two ranks.
std::vector<Check> huge_checks();

// Runs all; the names and reasons of those that failed on this rank.
std::vector<std::string> run(const std::vector<Check>& checks, Context& context);

void expect(bool ok, const std::string& what);

// Between host memory and memory under test, wherever that is.
OwnedBuffer copy_of(const Context& context, const BufferView& view);
void copy_to(const Context& context, const BufferView& view, const BufferView& host);

// Memory of this rank on the device under test; `heap`: from the communicator (host only).
class TestBuffer {
 public:
  TestBuffer(Context& context, uint64_t count, DType dtype, bool heap);
  const BufferView& view() const { return memory_.view(); }
  // The contents as host memory.
  OwnedBuffer host() const { return copy_of(context_, view()); }
  void upload(const BufferView& host) const { copy_to(context_, view(), host); }

 private:
  Context context_;
  OwnedBuffer memory_;
};

// The same values on every rank for the same (seed, rank).
OwnedBuffer input_of(int rank, uint64_t count, DType dtype, uint64_t seed);

}  // namespace horon::contract
