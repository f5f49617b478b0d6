#include "horon/runtime/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <random>
#include <stdexcept>

#include "tests/contract/suite.h"

// The runtime over real backends and memory: named operations in any order, buckets in place,
// scaling and codecs, sets, join, priorities.
namespace horon::contract {
namespace {

std::unique_ptr<Communicator> communicator_of_all(Communicator& comm) {
  std::vector<int> all(static_cast<size_t>(comm.size()));
  std::iota(all.begin(), all.end(), 0);
  return comm.sub_communicator(all);
}

void fill(const TestBuffer& buffer, float value) {
  const OwnedBuffer host = OwnedBuffer::host(buffer.view().count, DType::kF32);
  for (float& one : host.as<float>()) one = value;
  buffer.upload(host.view());
}

void expect_all(const TestBuffer& buffer, float want, const std::string& what) {
  const OwnedBuffer host = buffer.host();
  for (const float one : host.as<float>())
    expect(one == want, fmt::format("{}: {} instead of {}", what, one, want));
}

float sum_of_ranks(const Context& context) {
  return static_cast<float>(context.comm.size() * (context.comm.size() - 1)) / 2;
}

// Other orders in every run; what failed can be run again. The same on all ranks.
unsigned test_seed(Communicator& comm) {
  const char* given = std::getenv("HORON_TEST_SEED");
  std::array<int64_t, 1> seed = {given != nullptr ? std::stol(given) : std::random_device()()};
  comm.broadcast(view_of(seed), 0, {.name = "seed"});
  return static_cast<unsigned>(seed[0]);
}

// Every step in an order of this rank's own; the last steps need no agreement any more.
void any_order_of(Context& context, unsigned seed) {
  Runtime runtime(communicator_of_all(context.comm));
  constexpr int kSteps = 8;
  std::vector<TestBuffer> data;
  for (uint64_t i = 0; i < 20; ++i)
    data.emplace_back(context, 1 + 997 * i, DType::kF32, i % 2 == 0);
  std::mt19937 random(seed + static_cast<unsigned>(context.comm.rank()));
  uint64_t control = 0;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<size_t> order(data.size());
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Work> works;
    for (const size_t i : order) {
      fill(data[i], static_cast<float>(context.comm.rank() + step));
      works.push_back(runtime.all_reduce(fmt::format("t{}", i), data[i].view()));
    }
    for (const Work& work : works) work.wait();
    for (size_t i = 0; i < data.size(); ++i)
      expect_all(data[i], sum_of_ranks(context) + static_cast<float>(step * context.comm.size()),
                 fmt::format("step {}, t{}", step, i));
    if (step == kSteps / 2) control = runtime.counters().control_messages;
  }
  expect(runtime.counters().control_messages == control, "repeated steps needed control messages");
}

void any_order(Context& context) {
  const unsigned seed = test_seed(context.comm);
  try {
    any_order_of(context, seed);
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("HORON_TEST_SEED={}: {}", seed, error.what()));
  }
}

// Declared tensors: reduced where they are, in every step.
void buckets(Context& context) {
  Runtime runtime(communicator_of_all(context.comm));
  std::vector<TensorSpec> specs(12);
  for (size_t i = 0; i < specs.size(); ++i) {
    specs[i].name = fmt::format("t{}", i);
    specs[i].count = 1000 * (i + 1);
    if (context.device) specs[i].device = {DeviceKind::kCuda, 0};
  }
  const BucketMemory memory = runtime.allocate_buckets(specs);
  for (int step = 0; step < 4; ++step) {
    std::vector<Work> works;
    for (size_t i = 0; i < specs.size(); ++i) {
      // Element k is its rank's number, the tensor's, the step's and k itself.
      const OwnedBuffer mine = OwnedBuffer::host(specs[i].count, DType::kF32);
      for (uint64_t k = 0; k < specs[i].count; ++k)
        mine.as<float>()[k] = static_cast<float>(static_cast<uint64_t>(context.comm.rank()) +
                                                 10 * i + 1000 * static_cast<uint64_t>(step) + k);
      copy_to(context, memory.views[i], mine.view());
      works.push_back(runtime.all_reduce(specs[i].name, memory.views[i]));
    }
    for (const Work& work : works) work.wait();
    for (size_t i = 0; i < specs.size(); ++i) {
      const OwnedBuffer result = copy_of(context, memory.views[i]);
      const auto ranks = static_cast<uint64_t>(context.comm.size());
      for (uint64_t k = 0; k < specs[i].count; ++k) {
        const float want =
            sum_of_ranks(context) +
            static_cast<float>(ranks * (10 * i + 1000 * static_cast<uint64_t>(step) + k));
        expect(result.as<float>()[k] == want,
               fmt::format("step {}, t{}, element {}: {} instead of {}", step, i, k,
                           result.as<float>()[k], want));
      }
    }
  }
  expect(runtime.counters().bytes_copied == 0, "declared tensors were copied");
  expect(runtime.counters().control_messages == 0, "declared tensors needed control messages");
}

void scaled_and_encoded(Context& context) {
  Runtime runtime(communicator_of_all(context.comm));
  const TestBuffer data(context, 5000, DType::kF32, false);
  for (const char* codec : {"none", "fp16", "bf16+feedback"}) {
    for (int step = 0; step < 3; ++step) {
      fill(data, static_cast<float>(context.comm.rank()));
      const NamedOptions options{.prescale = 2.0, .postscale = 0.25, .codec = codec};
      runtime.all_reduce(codec, data.view(), options).wait();
      expect_all(data, sum_of_ranks(context) * 0.5F, codec);
    }
  }
}

void sets(Context& context) {
  Runtime runtime(communicator_of_all(context.comm));
  std::vector<int> even;
  for (int rank = 0; rank < context.comm.size(); rank += 2) even.push_back(rank);
  const int set = runtime.add_process_set(even);
  const TestBuffer mine(context, 100, DType::kF32, true);
  const TestBuffer all(context, 100, DType::kF32, true);
  for (int step = 0; step < 3; ++step) {
    fill(mine, 1.0F);
    fill(all, 1.0F);
    Work work = runtime.all_reduce("all", all.view());
    if (context.comm.rank() % 2 == 0) {
      runtime.all_reduce("even", mine.view(), {.set = set}).wait();
      expect_all(mine, static_cast<float>(even.size()), "the set");
    }
    work.wait();
    expect_all(all, static_cast<float>(context.comm.size()), "all");
  }
  expect(runtime.remove_process_set(set), "the set cannot be removed");
}

// Rank r has r + 1 steps; those that are through add nothing.
void join(Context& context) {
  Runtime runtime(communicator_of_all(context.comm));
  const TestBuffer data(context, 300, DType::kF32, true);
  for (int step = 0; step <= context.comm.rank(); ++step) {
    fill(data, 1.0F);
    runtime.all_reduce("x", data.view()).wait();
    expect_all(data, static_cast<float>(context.comm.size() - step), fmt::format("step {}", step));
  }
  expect(runtime.join() == context.comm.size() - 1, "the last one to join is another");
}

void urgent(Context& context) {
  RuntimeOptions options;
  options.chunk_bytes = 1U << 16;
  Runtime runtime(communicator_of_all(context.comm), options);
  const TestBuffer large(context, 1U << 20, DType::kF32, true);
  const TestBuffer small(context, 10, DType::kF32, true);
  for (int step = 0; step < 3; ++step) {
    fill(large, 1.0F);
    fill(small, 2.0F);
    const Work bulk = runtime.all_reduce("large", large.view());
    runtime.all_reduce("small", small.view(), {.priority = 1}).wait();
    bulk.wait();
    expect_all(large, static_cast<float>(context.comm.size()), "large");
    expect_all(small, static_cast<float>(2 * context.comm.size()), "small");
  }
}

}  // namespace

std::vector<Check> runtime_checks() {
  return {
      {"any order", any_order}, {"buckets", buckets}, {"scaled and encoded", scaled_and_encoded},
      {"sets", sets},           {"join", join},       {"urgent", urgent}};
}

}  // namespace horon::contract
