// Every row that the backend published is printed and gone by, and every algorithm gives what it
// should.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "horon/base/text.h"
#include "horon/comm/engine/select.h"
#include "horon/comm/start/backends.h"
#include "tests/contract/suite.h"
#include "tests/support/reference.h"

namespace horon::contract {
namespace {

struct Probe {
  OpKind kind;
  uint64_t bytes;
  bool heap;
  bool grouped;
  DType dtype = DType::kF32;
  Reduction reduction = Reduction::kFast;
};

void run_request(Context& context, const Probe& probe, const Request& request) {
  context.comm.run(probe.grouped ? Request::group({request}) : request);
}

// Elements [first, ...) of `result` are those of `rank`'s input from `from` on.
void expect_input(const OwnedBuffer& result, uint64_t first, int rank, uint64_t from,
                  uint64_t count, uint64_t whole, const Probe& probe) {
  const OwnedBuffer input = input_of(rank, whole, probe.dtype, probe.bytes);
  expect(count == 0 || std::memcmp(result.view().slice(first, count).data,
                                   input.view().slice(from, count).data,
                                   input.view().slice(from, count).bytes()) == 0,
         fmt::format("{} of {} bytes: what came from rank {}", name_of(probe.kind), probe.bytes,
                     rank));
}

void check_reducing(Context& context, const Probe& probe) {
  Communicator& comm = context.comm;
  const uint64_t count = probe.bytes / size_of(probe.dtype);
  const auto counts = even_counts(count, comm.size());
  const bool scatters = probe.kind == OpKind::kReduceScatter;
  const TestBuffer in(context, count, probe.dtype, probe.heap);
  const TestBuffer out(context, counts[static_cast<size_t>(comm.rank())], probe.dtype, probe.heap);
  in.upload(input_of(comm.rank(), count, probe.dtype, probe.bytes).view());
  run_request(context, probe,
              scatters ? Request::reduce_scatter(in.view(), out.view())
                       : Request::all_reduce(in.view(), {.reduction = probe.reduction}));
  uint64_t first = 0;
  for (int rank = 0; scatters && rank < comm.rank(); ++rank)
    first += counts[static_cast<size_t>(rank)];
  const OwnedBuffer result = scatters ? out.host() : in.host();
  const std::string wrong = testing_support::check_reduced(
      result.view(), ReduceOp::kSum, probe.bytes, scatters ? 0 : comm.rank(), comm.size(), first);
  expect(wrong.empty(), fmt::format("{} of {} bytes: {}", name_of(probe.kind), probe.bytes, wrong));
}

void check_moving(Context& context, const Probe& probe) {
  Communicator& comm = context.comm;
  const auto n = static_cast<uint64_t>(comm.size());
  const uint64_t count = probe.bytes / size_of(probe.dtype);
  const uint64_t all = count * n;
  const bool swaps = probe.kind == OpKind::kAllToAll;
  const TestBuffer in(context, swaps ? all : count, probe.dtype, probe.heap);
  const TestBuffer out(context, all, probe.dtype, probe.heap);
  in.upload(input_of(comm.rank(), in.view().count, probe.dtype, probe.bytes).view());
  const int root = comm.size() - 1;
  const std::vector<uint64_t> even(n, count);
  if (probe.kind == OpKind::kBroadcast) {
    run_request(context, probe, Request::broadcast(in.view(), root));
    return expect_input(in.host(), 0, root, 0, count, count, probe);
  }
  run_request(context, probe,
              swaps ? Request::all_to_all(in.view(), even, out.view(), even)
                    : Request::all_gather(in.view(), out.view()));
  const OwnedBuffer result = out.host();
  for (int rank = 0; rank < comm.size(); ++rank) {
    const uint64_t from = swaps ? count * static_cast<uint64_t>(comm.rank()) : 0;
    expect_input(result, count * static_cast<uint64_t>(rank), rank, from, count, in.view().count,
                 probe);
  }
}

std::vector<Probe> all_probes() {
  std::vector<Probe> probes;
  for (uint64_t bytes : {64U, 12U << 10, 200U << 10}) {
    for (int flags = 0; flags < 4; ++flags) {
      const bool heap = (flags & 1) != 0;
      const bool grouped = (flags & 2) != 0;
      for (OpKind kind : {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather,
                          OpKind::kBroadcast, OpKind::kAllToAll})
        probes.push_back({kind, bytes, heap, grouped});
      probes.push_back({OpKind::kAllReduce, bytes, heap, grouped, DType::kF16});
      probes.push_back({OpKind::kAllReduce, bytes, heap, grouped, DType::kF32, Reduction::kExact});
    }
  }
  return probes;
}

// Whether anything leads to this row on so many ranks.
std::set<const AlgorithmRow*> possible_rows(const AlgorithmTable& table, const Context& context) {
  std::set<const AlgorithmRow*> rows;
  const std::string backend = context.comm.backend();
  const bool always_reach = backend == "self" || backend == "local";  // threads: any memory
  for (const Probe& probe : all_probes()) {
    for (int flags = always_reach ? 2 : 0; flags < 4; ++flags) {
      rows.insert(table.find({.kind = probe.kind,
                              .reduction = probe.reduction,
                              .device = context.device ? DeviceKind::kCuda : DeviceKind::kCpu,
                              .dtype = probe.dtype,
                              .bytes = probe.bytes,
                              .ranks = context.comm.size(),
                              .fits_header = (flags & 1) != 0,
                              .reachable = (flags & 2) != 0}));
    }
  }
  rows.erase(nullptr);
  return rows;
}

void every_row(Context& context) {
  Communicator& comm = context.comm;
  std::set<const AlgorithmRow*> gone;
  for (const Probe& probe : all_probes()) {
    const bool reduces = probe.kind == OpKind::kAllReduce || probe.kind == OpKind::kReduceScatter;
    reduces ? check_reducing(context, probe) : check_moving(context, probe);
    gone.insert(comm.chosen());
    expect(comm.chosen() != nullptr && comm.chosen()->kind == probe.kind,
           fmt::format("{}: no row was gone by", name_of(probe.kind)));
  }
  const AlgorithmTable table(comm.algorithms());
  for (const AlgorithmRow* row : possible_rows(table, context)) {
    const AlgorithmRow* theirs = comm.algorithms().data() + (row - table.rows().data());
    expect(gone.contains(theirs),
           fmt::format("{} up to {} bytes ({}): nothing went by this row", override_of(*row),
                       row->most_bytes, row->only == nullptr ? "always" : row->only->words));
  }
}

// The rows that `horon info --algorithms` prints for it. "hier(shm+tcp)" is printed as hier, and
// "nccl(shm)" as nccl, besides shm.
std::vector<AlgorithmRow> printed_rows(const std::string& backend) {
  const std::string name = backend.substr(0, backend.find('('));
  std::vector<AlgorithmRow> rows;
  for (const Published& one : published_algorithms(JobSettings())) {
    const auto names = split(one.backends, ',');
    if (std::find(names.begin(), names.end(), name) != names.end()) rows = one.rows;
  }
  if (name != "nccl") return rows;
  const std::string inner = backend.substr(name.size() + 1, backend.size() - name.size() - 2);
  for (const AlgorithmRow& row : printed_rows(inner)) rows.push_back(row);
  return rows;
}

void rows_as_printed(Context& context) {
  const auto text = [](std::vector<AlgorithmRow> rows) {
    const std::vector<Published> one = {{"", "", AlgorithmTable(std::move(rows)).rows()}};
    return print_algorithms(one);
  };
  const std::string printed = text(printed_rows(context.comm.backend()));
  const std::string used = text(context.comm.algorithms());
  expect(printed == used, fmt::format("printed:\n{}used:\n{}", printed, used));
}

}  // namespace

std::vector<Check> algorithm_checks() {
  return {{"rows_as_printed", rows_as_printed}, {"every_row", every_row}};
}

void check_override(Context& context, const AlgorithmRow& row) {
  const Probe probe{row.kind, 4096, true, false, DType::kF32, row.reduction};
  // What fits into the header of any backend.
  const Probe small{row.kind, 64, true, false, DType::kF32, row.reduction};
  const Probe& taken = row.algorithm == Algorithm::kInline ? small : probe;
  const bool reduces = row.kind == OpKind::kAllReduce || row.kind == OpKind::kReduceScatter;
  reduces ? check_reducing(context, taken) : check_moving(context, taken);
  const AlgorithmRow* chosen = context.comm.chosen();
  expect(chosen != nullptr && chosen->algorithm == row.algorithm,
         fmt::format("{} was asked for, {} was taken", override_of(row),
                     chosen == nullptr ? "nothing" : override_of(*chosen)));
}

}  // namespace horon::contract
