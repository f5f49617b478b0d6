#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>

#include "horon/comm/bootstrap.h"
#include "tests/contract/suite.h"
#include "tests/support/run_ranks.h"

// The contract over ranks that are threads: backends self (1) and local (2-8).
namespace horon::contract {
namespace {

class LocalContract : public testing::TestWithParam<int> {};

void run_all(const std::vector<Check>& checks, int size) {
  std::mutex mutex;
  std::vector<std::string> failures;
  testing_support::run_ranks(make_local_world(size), [&](Communicator& comm) {
    Context context{comm, nullptr};
    for (const std::string& failure : run(checks, context)) {
      const std::lock_guard lock(mutex);
      failures.push_back(fmt::format("rank {}: {}", comm.rank(), failure));
    }
  });
  EXPECT_TRUE(failures.empty()) << fmt::format("{}", fmt::join(failures, "\n"));
}

TEST_P(LocalContract, Operations) { run_all(operation_checks(), GetParam()); }
TEST_P(LocalContract, Behaviour) { run_all(behaviour_checks(), GetParam()); }

// The backends that are meant for processes, with ranks as threads: here a thread sanitizer sees
// all of them.
class ThreadContract : public testing::TestWithParam<const char*> {};

TEST_P(ThreadContract, Behaviour) {
  const int size = 4;
  const auto store = make_memory_store();
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&store, rank] {
      BootstrapInfo info;
      info.rank = rank;
      info.size = size;
      info.store = store;
      info.knobs.set("backend", GetParam(), "test");
      info.knobs.set("heap_bytes", "64MB", "test");
      if (std::string(GetParam()) == "hier")
        info.knobs.set("host_id", fmt::format("host{}", rank % 2), "test");
      const auto comm = make_communicator(info);
      Context context{*comm, nullptr};
      return fmt::format("{}", fmt::join(run(behaviour_checks(), context), "; "));
    }));
  }
  for (auto& rank : ranks) EXPECT_EQ(rank.get(), "");
}

INSTANTIATE_TEST_SUITE_P(Backends, ThreadContract, testing::Values("shm", "gloo", "hier"),
                         [](const auto& one) { return std::string(one.param); });

TEST(LocalHuge, Holds) { run_all(huge_checks(), 2); }

INSTANTIATE_TEST_SUITE_P(Ranks, LocalContract, testing::Values(1, 2, 3, 4, 5, 6, 7, 8));

}  // namespace
}  // namespace horon::contract
