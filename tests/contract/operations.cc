#include <fmt/format.h>

#include <array>
#include <cstring>
#include <numeric>

#include "tests/contract/suite.h"
#include "tests/support/reference.h"

namespace horon::contract {
namespace {

using testing_support::check_reduced;

constexpr std::array<ReduceOp, 5> kOps = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin,
                                          ReduceOp::kMax, ReduceOp::kProduct};
// 0, 1, 2^k - 1, 2^k, 2^k + 1
constexpr std::array<uint64_t, 14> kCounts = {0,  1,  2,   3,   7,    8,    9,
                                              63, 65, 127, 129, 1023, 1025, 4097};
constexpr std::array<uint64_t, 3> kLargeCounts = {65535, 65537, (1U << 18) + 1};

void check_all_reduce(Context& context, DType dtype, ReduceOp op, uint64_t count) {
  Communicator& comm = context.comm;
  const uint64_t seed = count + 31 * static_cast<uint64_t>(op);
  const TestBuffer data(context, count, dtype, count % 2 == 0);
  data.upload(input_of(comm.rank(), count, dtype, seed).view());
  comm.all_reduce(data.view(), {.op = op});
  const std::string wrong = check_reduced(data.host().view(), op, seed, comm.rank(), comm.size());
  expect(wrong.empty(), fmt::format("{} {}[{}]: {}", name_of(op), name_of(dtype), count, wrong));
}

void all_reduce_small(Context& context) {
  for (DType dtype : all_dtypes()) {
    for (ReduceOp op : kOps) {
      if (op == ReduceOp::kAverage && dtype == DType::kBool) continue;
      for (uint64_t count : kCounts) check_all_reduce(context, dtype, op, count);
    }
  }
}

void all_reduce_large(Context& context) {
  for (DType dtype : all_dtypes())
    check_all_reduce(context, dtype, ReduceOp::kSum, kLargeCounts[1]);
  for (uint64_t count : kLargeCounts)
    check_all_reduce(context, DType::kF32, ReduceOp::kAverage, count);
  for (bool heap : {false, true}) {  // beyond every window
    const uint64_t count = (3U << 20) + 5;
    const TestBuffer data(context, count, DType::kF32, heap);
    OwnedBuffer mine = OwnedBuffer::host(count, DType::kF32);
    auto values = mine.as<float>();
    for (uint64_t i = 0; i < count; ++i)
      values[i] = static_cast<float>((i + context.comm.rank()) % 1024);
    data.upload(mine.view());
    context.comm.all_reduce(data.view());
    const OwnedBuffer result = data.host();
    for (uint64_t i = 0; i < count; ++i) {
      float expected = 0;
      for (int rank = 0; rank < context.comm.size(); ++rank)
        expected += static_cast<float>((i + rank) % 1024);
      expect(result.as<float>()[i] == expected,
             fmt::format("element {} of {} (heap {})", i, count, heap));
    }
  }
}

// Uneven on purpose: rank r owns r + 1 parts, rank 1 nothing.
std::vector<uint64_t> uneven(int size, uint64_t unit) {
  std::vector<uint64_t> counts;
  for (int rank = 0; rank < size; ++rank)
    counts.push_back(rank == 1 ? 0 : static_cast<uint64_t>(rank + 1) * unit);
  return counts;
}

uint64_t total_of(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

// Some 3 million elements over all ranks: beyond every window on few ranks, affordable on many.
uint64_t large_unit(int size) { return 3'100'003 / total_of(uneven(size, 1)); }

void check_reduce_scatter(Context& context, DType dtype, uint64_t unit, bool heap, bool even) {
  Communicator& comm = context.comm;
  auto counts = uneven(comm.size(), unit);
  const uint64_t total = total_of(counts);
  if (even) counts = even_counts(total, comm.size());
  const TestBuffer in(context, total, dtype, heap);
  const TestBuffer out(context, counts[comm.rank()], dtype, heap);
  in.upload(input_of(comm.rank(), total, dtype, unit).view());
  comm.reduce_scatter(in.view(), out.view(), even ? std::vector<uint64_t>() : counts,
                      {.op = ReduceOp::kSum});
  uint64_t first = 0;
  for (int rank = 0; rank < comm.rank(); ++rank) first += counts[rank];
  // Segments differ from rank to rank, so every rank looks at all of its own.
  const std::string wrong =
      check_reduced(out.host().view(), ReduceOp::kSum, unit, 0, comm.size(), first);
  expect(wrong.empty(), fmt::format("{} unit {}: {}", name_of(dtype), unit, wrong));
}

void reduce_scatter(Context& context) {
  for (DType dtype : all_dtypes()) {
    for (uint64_t unit : {0U, 1U, 33U})
      check_reduce_scatter(context, dtype, unit, false, unit == 33);
  }
  for (uint64_t unit : {uint64_t{5000}, large_unit(context.comm.size())}) {
    for (bool heap : {false, true}) check_reduce_scatter(context, DType::kF32, unit, heap, false);
  }
}

void check_gather(Context& context, DType dtype, uint64_t unit, bool heap) {
  Communicator& comm = context.comm;
  const auto counts = uneven(comm.size(), unit);
  const TestBuffer in(context, counts[comm.rank()], dtype, heap);
  const TestBuffer out(context, total_of(counts), dtype, heap);
  in.upload(input_of(comm.rank(), counts[comm.rank()], dtype, unit).view());
  comm.all_gather(in.view(), out.view());
  const OwnedBuffer result = out.host();
  Gathered gathered;
  if (!context.device) gathered = comm.all_gather(in.view());
  uint64_t first = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const OwnedBuffer theirs = input_of(rank, counts[rank], dtype, unit);
    const std::string where = fmt::format("{} unit {} from rank {}", name_of(dtype), unit, rank);
    const auto same = [&](const BufferView& all) {
      return theirs.view().count == 0 ||
             std::memcmp(all.slice(first, counts[rank]).data, theirs.view().data,
                         theirs.view().bytes()) == 0;
    };
    expect(same(result.view()), where);
    if (!context.device)
      expect(same(gathered.data.view()) && gathered.counts == counts, where + " (new memory)");
    first += counts[rank];
  }
}

void all_gather(Context& context) {
  for (DType dtype : all_dtypes()) {
    for (uint64_t unit : {0U, 1U, 65U}) check_gather(context, dtype, unit, unit == 65);
  }
  for (uint64_t unit : {uint64_t{9000}, large_unit(context.comm.size())}) {
    for (bool heap : {false, true}) check_gather(context, DType::kF32, unit, heap);
  }
}

void broadcast(Context& context) {
  Communicator& comm = context.comm;
  for (uint64_t count : {0U, 1U, 97U, 50'001U, 1'200'001U}) {
    for (int root = 0; root < comm.size(); ++root) {
      if (count > 50'001 && root > 1) continue;
      const DType dtype = all_dtypes()[(count + static_cast<uint64_t>(root)) % kDTypeCount];
      const OwnedBuffer expected = input_of(root, count, dtype, count);
      const TestBuffer data(context, count, dtype, root % 2 == 0);
      data.upload(input_of(comm.rank(), count, dtype, count).view());
      comm.broadcast(data.view(), root);
      const OwnedBuffer result = data.host();
      expect(count == 0 || std::memcmp(result.view().data, expected.view().data,
                                       expected.view().bytes()) == 0,
             fmt::format("{}[{}] from root {}", name_of(dtype), count, root));
    }
  }
}

// From rank i to rank j: (i + 2 j) mod 4 units.
uint64_t to_send(int from, int to, uint64_t unit) {
  return static_cast<uint64_t>((from + 2 * to) % 4) * unit;
}

void check_all_to_all(Context& context, DType dtype, uint64_t unit, bool heap) {
  Communicator& comm = context.comm;
  std::vector<uint64_t> sends;
  std::vector<uint64_t> receives;
  for (int peer = 0; peer < comm.size(); ++peer) {
    sends.push_back(to_send(comm.rank(), peer, unit));
    receives.push_back(to_send(peer, comm.rank(), unit));
  }
  const TestBuffer in(context, total_of(sends), dtype, heap);
  const TestBuffer out(context, total_of(receives), dtype, heap);
  in.upload(input_of(comm.rank(), total_of(sends), dtype, unit).view());
  comm.all_to_all(in.view(), sends, out.view(), receives);
  const OwnedBuffer result = out.host();
  uint64_t at = 0;
  for (int from = 0; from < comm.size(); ++from) {
    uint64_t total = 0;
    uint64_t first = 0;
    for (int to = 0; to < comm.size(); ++to) {
      if (to < comm.rank()) first += to_send(from, to, unit);
      total += to_send(from, to, unit);
    }
    const OwnedBuffer theirs = input_of(from, total, dtype, unit);
    const uint64_t count = receives[from];
    expect(count == 0 ||
               std::memcmp(result.view().slice(at, count).data,
                           theirs.view().slice(first, count).data, count * size_of(dtype)) == 0,
           fmt::format("{} unit {} from rank {}", name_of(dtype), unit, from));
    at += count;
  }
}

void all_to_all(Context& context) {
  for (DType dtype : all_dtypes()) {
    for (uint64_t unit : {0U, 1U, 77U}) check_all_to_all(context, dtype, unit, unit == 1);
  }
  for (bool heap : {false, true}) {
    check_all_to_all(context, DType::kF32, 1'200'003 / static_cast<uint64_t>(context.comm.size()),
                     heap);
  }
}

void huge(Context& context) {
  Communicator& comm = context.comm;
  const uint64_t count = (1ULL << 31) + 17;
  const TestBuffer data(context, count, DType::kU8, true);
  auto bytes = static_cast<uint8_t*>(data.view().data);
  std::memset(bytes, comm.rank() + 1, count);
  comm.all_reduce(data.view());
  const auto expected = static_cast<uint8_t>(comm.size() * (comm.size() + 1) / 2);
  for (uint64_t i = 0; i < count; i += i < 100 || i > count - 100 ? 1 : 1'000'003) {
    expect(bytes[i] == expected, fmt::format("all_reduce: element {}", i));
  }
  bytes[count - 1] = static_cast<uint8_t>(comm.rank() + 7);
  comm.broadcast(data.view(), comm.size() - 1);
  expect(bytes[count - 1] == comm.size() + 6, "broadcast: last element");
}

}  // namespace

std::vector<Check> operation_checks() {
  return {{"all_reduce_small", all_reduce_small},
          {"all_reduce_large", all_reduce_large},
          {"reduce_scatter", reduce_scatter},
          {"all_gather", all_gather},
          {"broadcast", broadcast},
          {"all_to_all", all_to_all}};
}

std::vector<Check> huge_checks() { return {{"huge", huge}}; }

}  // namespace horon::contract
