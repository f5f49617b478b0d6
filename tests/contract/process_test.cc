#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/job.h"

// The contract over real processes: shm, gloo, hier over pretended hosts, and both MPIs through
// mpirun.
namespace horon::testing_support {
namespace {

const std::string kRankProgram = HORON_CONTRACT_RANK;

struct Arrangement {
  std::string name;
  std::string backend;
  int ranks;
  int hosts;           // 0: one
  std::string mpirun;  // empty: started directly
  std::string checks;
};

void PrintTo(const Arrangement& setup, std::ostream* out) { *out << setup.name; }

// Open MPI refuses root and more ranks than cores unless told; MPICH does not care.
std::vector<std::string> mpirun_command(const Arrangement& setup) {
  std::vector<std::string> command = {setup.mpirun, "-np", std::to_string(setup.ranks)};
  const bool is_openmpi = setup.mpirun.find("openmpi") != std::string::npos;
  if (is_openmpi) {
    command.insert(command.end(),
                   {"--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader"});
  }
  // Under a leak detector: what Open MPI leaves behind itself cannot be told apart from ours.
  if (is_openmpi) command.insert(command.end(), {"env", "ASAN_OPTIONS=detect_leaks=0"});
  command.push_back(kRankProgram);
  return command;
}

class ProcessContract : public testing::TestWithParam<Arrangement> {};

TEST_P(ProcessContract, EveryRankPassesTheChecksOfItsBackend) {
  const Arrangement& setup = GetParam();
  const size_t plain = setup.backend.find("_plain");
  std::vector<std::string> arguments = {"--backend", setup.backend.substr(0, plain),
                                        "--checks",  setup.checks,
                                        "--hosts",   std::to_string(setup.hosts)};
  if (plain != std::string::npos) arguments.insert(arguments.end(), {"--knob-wire", "plain"});
  if (!setup.mpirun.empty()) {
    // Started by name: Debian installs mpirun.openmpi and mpirun.mpich side by side.
    if (std::system(("command -v " + setup.mpirun + " >/dev/null").c_str()) != 0) {
      GTEST_SKIP() << setup.mpirun << " is not installed";
    }
    Job job(mpirun_command(setup), arguments);
    EXPECT_EQ(describe_failures(job.wait(Deadline::after(std::chrono::seconds(240)))), "");
    return;
  }
  Job job(kRankProgram, setup.ranks, arguments);
  EXPECT_EQ(describe_failures(job.wait(Deadline::after(std::chrono::seconds(240)))), "");
}

std::vector<Arrangement> all_setups() {
  std::vector<Arrangement> setups;
  const auto add = [&](const std::string& backend, int ranks, int hosts, const std::string& mpirun,
                       const std::string& checks) {
    const std::string flavour = mpirun.empty() ? "" : "_" + mpirun.substr(mpirun.find('.') + 1);
    const std::string across = hosts == 0 ? "" : fmt::format("_{}hosts", hosts);
    setups.push_back({fmt::format("{}{}{}_{}_{}", backend, flavour, across, ranks, checks), backend,
                      ranks, hosts, mpirun, checks});
  };
  for (const char* checks : {"operations", "behaviour"}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const char* backend : {"shm", "tcp", "gloo"}) add(backend, ranks, 0, "", checks);
      for (const char* mpirun : {"mpirun.openmpi", "mpirun.mpich"})
        add("mpi", ranks, 0, mpirun, checks);
      if (ranks >= 2) add("hier", ranks, 2, "", checks);
    }
    add("hier", 6, 3, "", checks);
    add("tcp_plain", 3, 0, "", checks);
    add("hier_plain", 5, 2, "", checks);
    add("hier", 4, 2, "mpirun.openmpi", checks);
  }
  for (const int ranks : {1, 2, 5}) add("shm", ranks, 0, "", "runtime");
  for (const int ranks : {2, 3}) {
    for (const char* backend : {"tcp", "gloo"}) add(backend, ranks, 0, "", "runtime");
  }
  for (const char* mpirun : {"mpirun.openmpi", "mpirun.mpich"}) add("mpi", 3, 0, mpirun, "runtime");
  add("hier", 4, 2, "", "runtime");
  for (const char* backend : {"shm", "tcp", "tcp_plain", "gloo"}) add(backend, 2, 0, "", "huge");
  add("hier", 2, 2, "", "huge");
  add("mpi", 2, 0, "mpirun.openmpi", "huge");
  return setups;
}

INSTANTIATE_TEST_SUITE_P(Backends, ProcessContract, testing::ValuesIn(all_setups()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace horon::testing_support
