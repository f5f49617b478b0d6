#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

namespace horon::launch {

struct Spawn {
  std::vector<std::string> command;      // looked for on PATH of `environment`
  std::vector<std::string> environment;  // NAME=VALUE, all of it
  std::string folder;                    // empty: where we are
  std::vector<int> cores;                // empty: as we are
  int in = -1;                           // descriptors; -1: /dev/null for in, ours for the others
  int out = -1;
  int err = -1;
  int death_signal = 9;  // that it gets when we are gone
};

// Starts a process in a session of its own, with the default reaction to every signal. Call it from
// a thread that lives as long as the process may. Throws UsageError that says why it cannot run.
pid_t spawn(const Spawn& what);

// All that a command prints, stdout and stderr, until it ends. UsageError if it cannot be run.
std::string output_of(const std::vector<std::string>& command);

// Opens /dev/null in the place of a closed stdin, stdout or stderr, so that no pipe takes its
// number.
void keep_standard_descriptors();

// While it lives SIGINT, SIGTERM and SIGHUP (unless ignored) end this process at once with exit
// code 75: for the time before anything was made or started.
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

// From now on processes whose parents end become our children, not init's.
void adopt_orphans();

// Ends every process below this one, children of children included, and reaps them. Returns false
// if some are still there after two seconds.
bool end_descendants();

// "ended with status 3", "was killed by signal 9 (Killed)".
std::string describe_status(int wait_status);
// The exit status a shell would show: 128 + signal.
int exit_status(int wait_status);

}  // namespace horon::launch
