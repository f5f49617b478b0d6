#include "tests/support/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "horon/base/error.h"

namespace horon::testing_support {
namespace {

std::string make_folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "horon-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw io_error("mkdtemp");
  return pattern;
}

std::string read_all(const std::string& path) {
  const std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// True if the process ended before the deadline.
bool wait_for_end(pid_t process, Deadline deadline) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (fd < 0) return true;
  pollfd ended{fd, POLLIN, 0};
  const auto left = std::chrono::duration_cast<Milliseconds>(deadline.left()).count();
  const bool done = poll(&ended, 1, static_cast<int>(left)) > 0;
  close(fd);
  return done;
}

}  // namespace

Job::Job(const std::string& program, int size, const std::vector<std::string>& arguments)
    : folder_(make_folder()), store_(make_file_store(folder_ + "/store")) {
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> command = {
        program,   "--rank",          std::to_string(rank), "--size", std::to_string(size),
        "--store", folder_ + "/store"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    launch(command, fmt::format("{}/{}.log", folder_, rank));
  }
}

Job::Job(const std::vector<std::string>& command, const std::vector<std::string>& arguments)
    : folder_(make_folder()), store_(make_file_store(folder_ + "/store")) {
  std::vector<std::string> whole = command;
  whole.insert(whole.end(), {"--store", folder_ + "/store"});
  whole.insert(whole.end(), arguments.begin(), arguments.end());
  launch(whole, folder_ + "/job.log");
}

void Job::launch(const std::vector<std::string>& command, const std::string& log) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t process = fork();
  if (process < 0) throw io_error("fork");
  if (process == 0) {
    setpgid(0, 0);  // so that what it starts can be killed with it
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int in = open("/dev/null", O_RDONLY);
    dup2(in, 0);
    dup2(out, 1);
    dup2(out, 2);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  setpgid(process, process);
  processes_.push_back(process);
  logs_.push_back(log);
}

Job::~Job() {
  for (pid_t process : processes_) {
    if (process > 0) {
      kill(-process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Job::signal(int rank, int number) const {
  kill(processes_[static_cast<size_t>(rank)], number);
}

std::vector<Outcome> Job::wait(Deadline deadline) {
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < processes_.size(); ++i) {
    Outcome outcome;
    outcome.hung = !wait_for_end(processes_[i], deadline);
    if (outcome.hung) kill(-processes_[i], SIGKILL);
    int status = 0;
    waitpid(processes_[i], &status, 0);
    kill(-processes_[i], SIGKILL);  // children that it left behind
    processes_[i] = -1;
    if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
    outcome.output = read_all(logs_[i]);
    outcomes.push_back(outcome);
  }
  return outcomes;
}

std::string describe_failures(const std::vector<Outcome>& outcomes) {
  std::string text;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    if (outcome.code == 0 && !outcome.hung) continue;
    text += fmt::format("process {}: {} code {} signal {}\n{}\n", i, outcome.hung ? "hung," : "",
                        outcome.code, outcome.signal, outcome.output);
  }
  return text;
}

}  // namespace horon::testing_support
