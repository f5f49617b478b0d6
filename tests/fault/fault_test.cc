#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "tests/support/job.h"

// Real processes, one of which is killed, stopped, or behaves badly at a chosen moment.
namespace horon::testing_support {
namespace {

const std::string kRankProgram = HORON_FAULT_RANK;

struct Fault {
  std::string backend;
  std::string scenario;
  int ranks;
  int victim;
  int hosts;
  std::string name() const {
    return fmt::format("{}_{}_{}of{}{}", backend, scenario, victim, ranks,
                       hosts > 0 ? "_hosts" : "");
  }
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name(); }

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

std::string clock_text() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return fmt::format("{:.6f}",
                     static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9);
}

// Waits until everybody is at the chosen moment.
void wait_for_scene(Job& job, const Fault& fault, const char* survivors_say) {
  if (std::string(survivors_say) == "waiting") job.store().wait({"ready"}, soon());
  for (int rank = 0; rank < fault.ranks; ++rank) {
    if (rank != fault.victim) job.store().wait({fmt::format("{}/{}", survivors_say, rank)}, soon());
  }
}

std::vector<std::string> arguments_of(const Fault& fault) {
  const size_t plain = fault.backend.find("_plain");
  return {"--backend",   fault.backend.substr(0, plain),
          "--knob-wire", plain != std::string::npos ? "plain" : "private",
          "--scenario",  fault.scenario,
          "--victim",    std::to_string(fault.victim),
          "--hosts",     std::to_string(fault.hosts)};
}

void expect_survivors_content(const Fault& fault, const std::vector<Outcome>& outcomes) {
  for (int rank = 0; rank < fault.ranks; ++rank) {
    if (rank == fault.victim) continue;
    EXPECT_TRUE(outcomes[rank].code == 0 && !outcomes[rank].hung)
        << "rank " << rank << " code " << outcomes[rank].code << " signal " << outcomes[rank].signal
        << (outcomes[rank].hung ? " hung" : "") << "\n"
        << outcomes[rank].output;
  }
}

class FaultTest : public testing::TestWithParam<Fault> {};

TEST_P(FaultTest, SurvivorsGetTheDocumentedErrorInTime) {
  const Fault& fault = GetParam();
  Job job(kRankProgram, fault.ranks, arguments_of(fault));
  wait_for_scene(job, fault, "waiting");
  if (fault.scenario.rfind("kill", 0) == 0) {
    job.store().set("killed", clock_text(), soon());
    job.signal(fault.victim, SIGKILL);
  } else if (fault.scenario == "stopped") {
    job.store().set("stopped", clock_text(), soon());
    job.signal(fault.victim, SIGSTOP);
    wait_for_scene(job, fault, "rebuilt");
    job.signal(fault.victim, SIGCONT);
  } else if (fault.scenario == "never_calls" || fault.scenario == "leaves") {
    wait_for_scene(job, fault, "survived");
    job.store().set("over", clock_text(), soon());
  }
  expect_survivors_content(fault, job.wait(Deadline::after(std::chrono::seconds(30))));
}

std::vector<Fault> all_faults() {
  std::vector<Fault> faults;
  for (const char* backend : {"shm", "tcp", "tcp_plain", "gloo"}) {
    for (const char* scenario : {"kill_waiting", "kill_parent", "kill_busy", "kill_runtime",
                                 "never_calls", "stopped", "leaves", "late_mismatch"}) {
      for (int victim : {0, 2}) faults.push_back({backend, scenario, 4, victim, 0});
    }
    faults.push_back({backend, "kill_waiting", 2, 1, 0});
    faults.push_back({backend, "kill_waiting", 8, 5, 0});
  }
  for (const char* scenario : {"kill_waiting", "kill_parent", "kill_busy", "kill_runtime",
                               "never_calls", "leaves", "late_mismatch"}) {
    faults.push_back({"hier", scenario, 4, 3, 2});
  }
  // A rank that others wait for inside its host and between hosts.
  for (const char* scenario : {"kill_waiting", "kill_busy", "leaves"})
    faults.push_back({"hier_plain", scenario, 4, 0, 2});
  return faults;
}

INSTANTIATE_TEST_SUITE_P(Backends, FaultTest, testing::ValuesIn(all_faults()),
                         [](const auto& one) { return one.param.name(); });

// mpirun ends the job when a rank dies; a rank that does not come must still be named at the
// deadline.
class MpiFault : public testing::TestWithParam<const char*> {};

TEST_P(MpiFault, ARankThatNeverCallsIsNamed) {
  const std::string mpirun = GetParam();
  if (std::system(("command -v " + mpirun + " >/dev/null").c_str()) != 0)
    GTEST_SKIP() << mpirun << " is not installed";
  std::vector<std::string> command = {mpirun, "-np", "3"};
  if (mpirun == "mpirun.openmpi")
    command.insert(command.end(), {"--allow-run-as-root", "--oversubscribe"});
  command.push_back(kRankProgram);
  const Fault fault{"mpi", "never_calls", 3, 1, 0};
  Job job(command, arguments_of(fault));
  wait_for_scene(job, fault, "waiting");
  wait_for_scene(job, fault, "survived");  // said only by a rank that saw what was promised
  job.store().set("over", clock_text(), soon());
  job.wait(Deadline::after(std::chrono::seconds(20)));
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiFault, testing::Values("mpirun.openmpi", "mpirun.mpich"),
                         [](const auto& one) { return std::string(one.param).substr(7); });

}  // namespace
}  // namespace horon::testing_support
