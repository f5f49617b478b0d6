#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <set>

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

TEST_P(LocalContract, GivesTheExpectedResultsOfAllOperations) {
  run_all(operation_checks(), GetParam());
}
TEST_P(LocalContract, HandlesGroupsJoinsMismatchesAndSubCommunicators) {
  run_all(behaviour_checks(), GetParam());
}

// The backends that are meant for processes, with ranks as threads: here a thread sanitizer sees
// all of them but mpi, where a process is one rank.
class ThreadContract : public testing::TestWithParam<const char*> {};

// What each rank found wrong.
std::vector<std::string> run_threads(const std::string& backend, int size,
                                     const std::string& algorithm,
                                     const std::function<std::string(Context&)>& body) {
  const auto store = make_memory_store();
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      BootstrapInfo info;
      info.rank = rank;
      info.size = size;
      info.store = store;
      info.job_settings.set("backend", backend, "test");
      info.job_settings.set("heap_bytes", "64MB", "test");
      info.job_settings.set("algorithm", algorithm, "test");
      if (backend == "hier")
        info.job_settings.set("host_id", fmt::format("host{}", rank % 2), "test");
      const auto comm = make_communicator(info);
      Context context{*comm, nullptr};
      return body(context);
    }));
  }
  std::vector<std::string> found;
  for (auto& rank : ranks) found.push_back(rank.get());
  return found;
}

TEST_P(ThreadContract, HandlesGroupsJoinsMismatchesAndSubCommunicators) {
  for (const std::string& found : run_threads(GetParam(), 4, "", [](Context& context) {
         return fmt::format("{}", fmt::join(run(behaviour_checks(), context), "; "));
       }))
    EXPECT_EQ(found, "");
}

// Every algorithm that the backend has, asked for by name.
TEST_P(ThreadContract, AlgorithmOverrides) {
  std::vector<AlgorithmRow> rows;
  run_threads(GetParam(), 1, "", [&](Context& context) {
    rows = context.comm.algorithms();
    return "";
  });
  std::set<std::pair<std::string, Reduction>> done;
  for (const AlgorithmRow& row : rows) {
    if (!done.emplace(override_of(row), row.reduction).second) continue;
    const auto found = run_threads(GetParam(), 3, override_of(row), [&](Context& context) {
      try {
        check_override(context, row);
      } catch (const std::exception& error) {
        return std::string(error.what());
      }
      return std::string();
    });
    for (const std::string& one : found) EXPECT_EQ(one, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ThreadContract, testing::Values("shm", "tcp", "gloo", "hier"),
                         [](const auto& one) { return std::string(one.param); });

TEST(LocalHuge, OperationsAbove2GiBWork) { run_all(huge_checks(), 2); }

INSTANTIATE_TEST_SUITE_P(Ranks, LocalContract, testing::Values(1, 2, 3, 4, 5, 6, 7, 8));

}  // namespace
}  // namespace horon::contract
