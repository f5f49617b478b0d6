#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

namespace horon::launch {

// What to start, and how.
struct Spawn {
  std::vector<std::string> command;      // searched on PATH of `environment`
  std::vector<std::string> environment;  // NAME=VALUE, complete
  std::string folder;                    // empty: our working folder
  std::vector<int> cores;                // empty: our cores
  int in = -1;                           // descriptors; -1: /dev/null for in, ours for the others
  int out = -1;
  int err = -1;
  int death_signal = 9;  // signal to it when we end
};

// Starts a process in its own session, with default signal handling. Call it from a thread that
// lives as long as the process may. Throws UsageError with the reason if it cannot run.
pid_t spawn(const Spawn& what);

// Runs a command and returns its stdout and stderr. UsageError if it cannot be run.
std::string output_of(const std::vector<std::string>& command);

// Opens /dev/null for a closed stdin, stdout or stderr, so that no pipe gets its number.
void keep_standard_descriptors();

// While it exists, SIGINT, SIGTERM and SIGHUP (unless ignored) end this process at once with exit
// code 75: for the time before anything was created or started.
class LeaveOnSignal {
 public:
  LeaveOnSignal();
  ~LeaveOnSignal();
  LeaveOnSignal(const LeaveOnSignal&) = delete;
  LeaveOnSignal& operator=(const LeaveOnSignal&) = delete;

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// From now on orphaned descendants become our children, not init's.
void adopt_orphans();

// Ends all descendants of this process and reaps them. False if some still exist after two seconds.
bool end_descendants();

// "ended with status 3", "was killed by signal 9 (Killed)".
std::string describe_status(int wait_status);
// The exit status that a shell reports: 128 + signal.
int exit_status(int wait_status);

}  // namespace horon::launch
