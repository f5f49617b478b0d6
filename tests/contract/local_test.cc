#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

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

INSTANTIATE_TEST_SUITE_P(Ranks, LocalContract, testing::Values(1, 2, 3, 4, 5, 6, 7, 8));

}  // namespace
}  // namespace horon::contract
