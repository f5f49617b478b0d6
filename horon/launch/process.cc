#include "horon/launch/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/time.h"
#include "horon/launch/environment.h"

namespace horon::launch {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

void default_signals() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

void bind_to(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof(set), &set);  // refused: the program runs anywhere, as well
}

// In the child, between fork and exec. Errors are sent through `report`.
[[noreturn]] void become(const Spawn& what, const std::vector<char*>& argv,
                         const std::vector<char*>& env, pid_t parent, int report) {
  const auto fail = [&](char stage) {
    const int error = errno;
    char message[1 + sizeof(error)] = {stage};
    std::memcpy(message + 1, &error, sizeof(error));
    [[maybe_unused]] const ssize_t told = write(report, message, sizeof(message));
    _exit(127);
  };
  setsid();
  prctl(PR_SET_PDEATHSIG, what.death_signal);
  if (getppid() != parent) _exit(127);  // the parent ended before prctl()
  default_signals();
  const int in = what.in >= 0 ? what.in : open("/dev/null", O_RDONLY);
  dup2(in, STDIN_FILENO);
  if (what.out >= 0) dup2(what.out, STDOUT_FILENO);
  if (what.err >= 0) dup2(what.err, STDERR_FILENO);
  if (!what.folder.empty() && chdir(what.folder.c_str()) != 0) fail('d');
  bind_to(what.cores);
  environ = const_cast<char**>(env.data());
  execvp(argv[0], argv.data());
  fail('x');
  _exit(127);
}

std::string explain(const Spawn& what, char stage, int error) {
  if (stage == 'd') {
    return fmt::format(
        "the working folder {} is not there ({}); make it on every host, or give "
        "another with --workdir",
        what.folder, std::strerror(error));
  }
  return fmt::format("cannot run '{}': {}", what.command.front(), std::strerror(error));
}

// Parent of each process.
std::map<pid_t, pid_t> process_table() {
  std::map<pid_t, pid_t> parents;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file("/proc/" + name + "/stat");
    std::string text;
    std::getline(file, text);
    const size_t after_name = text.rfind(')');
    if (after_name == std::string::npos || after_name + 4 > text.size()) continue;
    parents[std::stoi(name)] = std::atoi(text.c_str() + after_name + 4);
  }
  return parents;
}

}  // namespace

pid_t spawn(const Spawn& what) {
  require(!what.command.empty(), "no command to start");
  const auto argv = pointers(what.command);
  const auto env = pointers(what.environment);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) throw io_error("pipe");
  Fd read_end(report[0]);
  Fd write_end(report[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw io_error("fork");
  if (child == 0) become(what, argv, env, parent, write_end.get());
  write_end.reset();
  char message[1 + sizeof(int)];
  ssize_t got = 0;
  do {
    got = read(read_end.get(), message, sizeof(message));
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof(message))) return child;  // exec closed the pipe
  int error = 0;
  std::memcpy(&error, message + 1, sizeof(error));
  waitpid(child, nullptr, 0);
  throw UsageError(explain(what, message[0], error), ExitCode::kLaunch);
}

std::string output_of(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw io_error("pipe");
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  Spawn what;
  what.command = command;
  what.environment = flatten(process_environment());
  what.out = what.err = write_end.get();
  const pid_t child = spawn(what);
  write_end.reset();
  std::string text;
  char piece[4096];
  for (ssize_t got = 1; got != 0;) {
    got = read(read_end.get(), piece, sizeof(piece));
    if (got > 0) text.append(piece, static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  waitpid(child, nullptr, 0);
  return text;
}

void keep_standard_descriptors() {
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = open("/dev/null", O_RDWR)) {
    if (fd > STDERR_FILENO) {
      close(fd);
      return;
    }
  }
}

LeaveOnSignal::LeaveOnSignal() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = [](int) { _exit(static_cast<int>(ExitCode::kInterrupted)); };
    sigaction(kSignals[i], &action, nullptr);
  }
}

LeaveOnSignal::~LeaveOnSignal() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool end_descendants() {
  const Deadline deadline = Deadline::after(std::chrono::seconds(2));
  while (true) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const auto parents = process_table();
    bool any = false;
    for (const auto& [pid, parent] : parents) {
      pid_t at = parent;
      while (at > 1 && at != getpid()) {
        const auto up = parents.find(at);
        at = up == parents.end() ? 0 : up->second;
      }
      if (at != getpid()) continue;
      any = true;
      kill(pid, SIGKILL);
    }
    if (!any) return true;
    if (deadline.passed()) return false;
    // Ended processes become our children shortly; before that they cannot be waited for.
    std::this_thread::sleep_for(Milliseconds(2));
  }
}

std::string describe_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
  }
  return fmt::format("ended with status {}", WEXITSTATUS(wait_status));
}

int exit_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace horon::launch
