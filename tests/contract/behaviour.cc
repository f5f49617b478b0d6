#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/comm/once.h"
#include "tests/contract/suite.h"
#include "tests/support/reference.h"

namespace horon::contract {
namespace {

using testing_support::mix;

void grouped(Context& context) {
  Communicator& comm = context.comm;
  const int n = comm.size();
  for (size_t items : {1U, 3U, 700U}) {  // 700: descriptions no longer fit beside the header
    std::vector<TestBuffer> buffers;
    std::vector<Request> requests;
    for (size_t i = 0; i < items; ++i) {
      buffers.emplace_back(context, i % 50 + 1, DType::kI32, i % 2 == 0);
      OwnedBuffer mine = OwnedBuffer::host(i % 50 + 1, DType::kI32);
      for (int32_t& value : mine.as<int32_t>()) value = comm.rank() + static_cast<int>(i);
      buffers.back().upload(mine.view());
      requests.push_back(i % 3 == 2
                             ? Request::broadcast(buffers.back().view(), static_cast<int>(i) % n)
                             : Request::all_reduce(buffers.back().view()));
    }
    comm.run(Request::group(requests, {.name = "many"}));
    for (size_t i = 0; i < items; ++i) {
      const int sum = n * (n - 1) / 2 + n * static_cast<int>(i);
      const int sent = static_cast<int>(i) % n + static_cast<int>(i);
      const OwnedBuffer result = buffers[i].host();
      for (int32_t value : result.as<int32_t>()) {
        expect(value == (i % 3 == 2 ? sent : sum),
               fmt::format("item {} of {}: {}", i, items, value));
      }
    }
  }
}

// Buffers outside the heap go through windows that each operation cuts in its own way.
void mixed_windows(Context& context) {
  Communicator& comm = context.comm;
  const auto expected = static_cast<float>(comm.size());
  for (int round = 0; round < 60; ++round) {
    std::vector<float> a(1000, 1.0F);
    std::vector<float> b(static_cast<size_t>(100 + round), 1.0F);
    std::vector<float> c(231'072, 1.0F);
    comm.run(Request::group({Request::all_reduce(view_of(a)), Request::all_reduce(view_of(b)),
                             Request::all_reduce(view_of(c)), Request::broadcast(view_of(b), 0)}));
    for (const auto* one : {&a, &b, &c}) {
      expect(std::count(one->begin(), one->end(), expected) == static_cast<ptrdiff_t>(one->size()),
             fmt::format("{} elements in round {}", one->size(), round));
    }
  }
}

// All or nothing: one item that differs stops all of them.
void grouped_mismatch(Context& context) {
  Communicator& comm = context.comm;
  if (comm.size() < 2) return;
  std::vector<float> a(10, 1.0F);
  std::vector<float> b(10, 1.0F);
  const uint64_t count = comm.rank() == 1 ? 9 : 10;
  std::string said;
  try {
    comm.run(Request::group(
        {Request::all_reduce(view_of(a)), Request::all_reduce(view_of(b).slice(0, count))}));
  } catch (const UsageError& error) {
    said = error.what();
  }
  for (const char* words : {"operation 2 of the 2", "rank 1: all_reduce sum f32[9]", "f32[10]"})
    expect(said.find(words) != std::string::npos, fmt::format("the error is '{}'", said));
  expect(a == std::vector<float>(10, 1.0F), "a payload moved");
  said.clear();
  try {  // numbers of parts that differ, so many that they do not travel with the headers
    std::vector<Request> many(comm.rank() == 1 ? 2001 : 2000, Request::all_reduce(view_of(a)));
    comm.run(Request::group(std::move(many)));
  } catch (const UsageError& error) {
    said = error.what();
  }
  expect(said.find("rank 1: group of 2001 operations") != std::string::npos, said);
  said.clear();
  try {
    std::vector<Request> many(2000, Request::all_reduce(view_of(a)));
    if (comm.rank() == 1) many[1500] = Request::broadcast(view_of(a), 0);
    comm.run(Request::group(std::move(many)));
  } catch (const UsageError& error) {
    said = error.what();
  }
  for (const char* words : {"operation 1501 of the 2000", "rank 1: broadcast f32[10] from root 0"})
    expect(said.find(words) != std::string::npos, fmt::format("the error is '{}'", said));
  expect(a == std::vector<float>(10, 1.0F), "a payload moved");
}

// Rank r runs out of data after r + 1 steps; averages count the ranks that are still there.
void join(Context& context) {
  Communicator& comm = context.comm;
  const int n = comm.size();
  for (int step = 0; step <= comm.rank(); ++step) {
    const int contributors = n - step;
    for (uint64_t count : {3ULL, 40'000ULL}) {
      const TestBuffer data(context, count, DType::kF32, step % 2 == 0);
      OwnedBuffer mine = OwnedBuffer::host(count, DType::kF32);
      for (float& value : mine.as<float>()) value = static_cast<float>(comm.rank());
      data.upload(mine.view());
      comm.all_reduce(data.view(), {.op = ReduceOp::kAverage});
      const float expected = static_cast<float>((n - 1) * n / 2 - step * (step - 1) / 2) /
                             static_cast<float>(contributors);
      expect(std::fabs(data.host().as<float>()[count - 1] - expected) < 1e-5F,
             fmt::format("average in step {}", step));
    }
    std::vector<int32_t> value = {comm.rank()};
    comm.broadcast(view_of(value), n - 1);
    expect(value[0] == n - 1, "broadcast");
    if (!context.device) {
      std::vector<int32_t> mine(static_cast<size_t>(comm.rank()), comm.rank());
      const Gathered gathered = comm.all_gather(view_of(mine));
      expect(gathered.data.view().count ==
                 static_cast<uint64_t>((n - 1) * n / 2 - step * (step - 1) / 2),
             "all_gather");
    }
    std::vector<int64_t> in(static_cast<size_t>(n), comm.rank());
    std::vector<int64_t> out(1);
    comm.reduce_scatter(view_of(in), view_of(out), std::vector<uint64_t>(static_cast<size_t>(n), 1),
                        {.op = ReduceOp::kMax});
    expect(out[0] == n - 1, "reduce_scatter");
    std::vector<uint64_t> one(static_cast<size_t>(n), 1);
    std::vector<uint64_t> expected_from(static_cast<size_t>(n), 1);
    for (int gone = 0; gone < step; ++gone) expected_from[gone] = 0;
    std::vector<int64_t> received(static_cast<size_t>(contributors), -1);
    comm.all_to_all(view_of(in), one, view_of(received), expected_from);
    expect(received.front() == step && received.back() == n - 1, "all_to_all");
    std::vector<double> exact = {0.5, static_cast<double>(comm.rank())};
    comm.all_reduce(view_of(exact), {.op = ReduceOp::kSum, .reduction = Reduction::kExact});
    expect(exact[0] == 0.5 * contributors, "exact");
    comm.run(Request::group({Request::all_reduce(view_of(value)), Request::barrier()}));
    comm.barrier();
  }
  expect(comm.join() == n - 1, "the last to join");
}

void join_ends_together(Context& context) {
  expect(context.comm.join() == context.comm.size() - 1, "all at once");
  std::vector<int32_t> one = {1};
  context.comm.all_reduce(view_of(one));
  expect(one[0] == context.comm.size(), "works on after a join");
}

// Several groups, asynchronous operations in an order that differs from rank to rank.
void interleaved_sub_communicators(Context& context) {
  Communicator& comm = context.comm;
  const int n = comm.size();
  std::vector<std::unique_ptr<Communicator>> groups;
  std::vector<std::vector<int>> lists;
  for (int modulus : {1, 2, 3}) {
    std::vector<int> ranks;
    for (int rank = 0; rank < n; ++rank) {
      if (rank % modulus == 0 || rank == n - 1) ranks.push_back(rank);
    }
    lists.push_back(ranks);
    groups.push_back(comm.sub_communicator(ranks));
  }
  std::mt19937_64 random(static_cast<uint64_t>(comm.rank()) + 5);
  for (int round = 0; round < 3; ++round) {
    struct Pending {
      TestBuffer data;
      Work work;
      int expected;
    };
    std::vector<Pending> pending;
    std::vector<size_t> todo;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g]) todo.insert(todo.end(), 8, g);
    }
    std::shuffle(todo.begin(), todo.end(), random);
    std::vector<uint64_t> number(groups.size(), 0);
    for (size_t g : todo) {
      const uint64_t count = (number[g]++ % 4) * 6000 + 1;
      int expected = 0;
      for (int rank : lists[g]) expected += rank + static_cast<int>(g);
      pending.push_back({TestBuffer(context, count, DType::kI32, g % 2 == 0), Work(), expected});
      OwnedBuffer mine = OwnedBuffer::host(count, DType::kI32);
      for (int32_t& value : mine.as<int32_t>()) value = comm.rank() + static_cast<int>(g);
      pending.back().data.upload(mine.view());
      pending.back().work = groups[g]->start(Request::all_reduce(pending.back().data.view()));
    }
    for (const Pending& one : pending) {
      one.work.wait();
      expect(one.work.done() && !one.work.error(), "done without error");
      const OwnedBuffer result = one.data.host();
      for (int32_t value : result.as<int32_t>())
        expect(value == one.expected, "wrong sum in a group");
    }
  }
}

// Every rank must get the same UsageError, nothing may be touched, and the next operation must
// work.
void check_mismatch(Communicator& comm, const std::string& what, int odd_rank,
                    const std::function<void(bool odd)>& call) {
  std::string message;
  try {
    call(comm.rank() == odd_rank);
  } catch (const UsageError& error) {
    message = error.what();
  }
  expect(!message.empty(), what + ": no error");
  const auto hash = static_cast<int64_t>(hash_text(message) >> 1);
  std::vector<int64_t> low = {hash};
  std::vector<int64_t> high = {hash};
  comm.all_reduce(view_of(low), {.op = ReduceOp::kMin});
  comm.all_reduce(view_of(high), {.op = ReduceOp::kMax});
  expect(low[0] == high[0], what + ": ranks got different messages, one is: " + message);
}

void mismatches(Context& context) {
  Communicator& comm = context.comm;
  if (comm.size() < 2) return;
  std::vector<float> data(100'000, 1.0F);
  std::vector<float> other(100'000);
  const BufferView all = view_of(data);
  const int n = comm.size();
  for (int odd : {0, n - 1}) {
    for (uint64_t count : {10ULL, 100'000ULL}) {
      const BufferView view = all.slice(0, count);
      BufferView as_ints = view;
      as_ints.dtype = DType::kI32;
      check_mismatch(comm, "operation", odd,
                     [&](bool is) { is ? comm.broadcast(view, 0) : comm.all_reduce(view); });
      check_mismatch(comm, "type", odd, [&](bool is) { comm.all_reduce(is ? as_ints : view); });
      check_mismatch(comm, "count", odd,
                     [&](bool is) { comm.all_reduce(view.slice(0, is ? count / 2 : count)); });
      check_mismatch(comm, "reduce op", odd, [&](bool is) {
        comm.all_reduce(view, {.op = is ? ReduceOp::kMax : ReduceOp::kSum});
      });
      check_mismatch(comm, "root", odd, [&](bool is) { comm.broadcast(view, is ? 1 : 0); });
      check_mismatch(comm, "bad root", odd, [&](bool is) { comm.broadcast(view, is ? 99 : 0); });
      check_mismatch(comm, "order", odd,
                     [&](bool is) { comm.all_reduce(view, {.name = is ? "b" : "a"}); });
      check_mismatch(comm, "barrier", odd,
                     [&](bool is) { is ? comm.barrier() : comm.all_reduce(view); });
      check_mismatch(comm, "reduction", odd, [&](bool is) {
        comm.all_reduce(view, {.reduction = is ? Reduction::kExact : Reduction::kFast});
      });
      check_mismatch(comm, "room", odd, [&](bool is) {
        comm.all_gather(view.slice(0, 3),
                        view_of(other).slice(0, static_cast<uint64_t>(3 * n) + (is ? 1 : 0)));
      });
      check_mismatch(comm, "split", odd, [&](bool is) {
        std::vector<uint64_t> counts(static_cast<size_t>(n), 0);
        counts[is ? 0 : 1] = count;
        comm.reduce_scatter(view, view_of(other).slice(0, counts[comm.rank()]), counts);
      });
      check_mismatch(comm, "transpose", odd, [&](bool is) {
        std::vector<uint64_t> ones(static_cast<size_t>(n), 1);
        std::vector<uint64_t> wrong = ones;
        if (is) wrong[(comm.rank() + 1) % n] = 2;
        comm.all_to_all(view.slice(0, static_cast<uint64_t>(n)), ones,
                        view_of(other).slice(0, static_cast<uint64_t>(n) + (is ? 1 : 0)), wrong);
      });
    }
  }
  expect(data == std::vector<float>(100'000, 1.0F), "a buffer was touched");
}

void asynchronous(Context& context) {
  Communicator& comm = context.comm;
  std::vector<int32_t> a = {1};
  std::vector<int32_t> b = {2};
  const Work first = comm.start(Request::all_reduce(view_of(a)));
  const Work second = comm.start(Request::all_reduce(view_of(b)));
  std::vector<int32_t> c = {3};
  comm.all_reduce(view_of(c));  // queues behind the two
  expect(first.done() && second.done(), "operations overtook each other");
  expect(a[0] == comm.size() && b[0] == 2 * comm.size() && c[0] == 3 * comm.size(), "wrong sums");
  if (comm.size() > 1) {
    const Work wrong = comm.start(Request::broadcast(view_of(a), comm.rank() == 0 ? 0 : 1));
    bool thrown = false;
    try {
      wrong.wait();
    } catch (const UsageError&) {
      thrown = true;
    }
    expect(thrown && wrong.error(), "the error did not reach the handle");
  }
}

// Nobody else comes: the deadline of the handle passes, the operation goes on.
void work_deadline(Context& context) {
  Communicator& comm = context.comm;
  if (comm.size() < 2) return;
  std::vector<int32_t> value = {comm.rank()};
  Work work;
  if (comm.rank() == 0) {
    work = comm.start(Request::all_reduce(view_of(value), {.name = "late"}));
    expect(!work.wait(Deadline::after(Milliseconds(20))), "finished without the others");
  }
  // Through another group: rank 0 tells the others that it has looked.
  const auto pair = comm.sub_communicator(comm.rank() < 2 ? std::vector<int>{0, 1}
                                                          : std::vector<int>{comm.rank()});
  pair->barrier();
  if (comm.rank() == 0) {
    work.wait();
  } else {
    comm.all_reduce(view_of(value), {.name = "late"});
  }
  expect(value[0] == comm.size() * (comm.size() - 1) / 2, "wrong sum");
}

void many_sub_communicators(Context& context) {
  Communicator& comm = context.comm;
  std::vector<int> everybody;
  for (int rank = 0; rank < comm.size(); ++rank) everybody.push_back(rank);
  for (int i = 0; i < 300; ++i) {  // more than can be open at a time: closed ones are used again
    const auto group = comm.sub_communicator(everybody);
    std::vector<int32_t> one = {1};
    group->all_reduce(view_of(one));
    expect(one[0] == comm.size(), "sum in a short-lived group");
  }
  expect(comm.size() == 1 || comm.sub_communicator({comm.rank() == 0 ? 1 : 0}) == nullptr,
         "a group without us");
}

}  // namespace

namespace {

void once_on_each_host(Context& context) {
  std::array<int32_t, 1> runs = {0};
  once_per_host(context.comm, [&] { runs[0] = 1; });
  context.comm.all_reduce(view_of(runs));
  expect(runs[0] == context.comm.topology().cross_size, "not once on each host");
  std::string said;
  try {
    once_per_host(context.comm, [&] {
      if (context.comm.topology().cross_rank == context.comm.topology().cross_size - 1)
        throw Error("no such mirror", ExitCode::kData);
    });
  } catch (const Error& error) {
    said = error.what();
    expect(error.exit_code() == ExitCode::kData, "another exit code");
  }
  const int culprit = context.comm.topology().hosts.back().front();
  expect(said == fmt::format("rank {}: no such mirror", culprit), "failed otherwise: " + said);
}

}  // namespace

std::vector<Check> behaviour_checks() {
  std::vector<Check> checks = {{"grouped", grouped},
                               {"mixed_windows", mixed_windows},
                               {"grouped_mismatch", grouped_mismatch},
                               {"join", join},
                               {"join_ends_together", join_ends_together},
                               {"interleaved_sub_communicators", interleaved_sub_communicators},
                               {"mismatches", mismatches},
                               {"asynchronous", asynchronous},
                               {"work_deadline", work_deadline},
                               {"many_sub_communicators", many_sub_communicators},
                               {"once_on_each_host", once_on_each_host}};
  for (Check& one : exact_checks()) checks.push_back(std::move(one));
  for (Check& one : algorithm_checks()) checks.push_back(std::move(one));
  return checks;
}

}  // namespace horon::contract
