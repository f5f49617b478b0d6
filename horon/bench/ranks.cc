#include "horon/bench/ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/job_settings.h"
#include "horon/base/part.h"
#include "horon/base/text.h"

namespace horon::bench {
namespace {

namespace fs = std::filesystem;

class Children {
 public:
  ~Children() { end_all(); }

  void start(const std::vector<std::string>& command, const std::string& log) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child < 0) throw io_error("fork");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(out, STDOUT_FILENO);
      if (isatty(STDERR_FILENO) == 0) dup2(out, STDERR_FILENO);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    children_.push_back(child);
  }

  // True if all ranks succeeded. The first failure ends the others.
  bool wait() {
    bool ok = true;
    while (!children_.empty()) {
      int status = 0;
      const pid_t ended = waitpid(-1, &status, 0);
      if (ended < 0) break;
      std::erase(children_, ended);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        ok = false;
        end_all();
      }
    }
    return ok;
  }

 private:
  void end_all() {
    for (pid_t child : children_) kill(child, SIGKILL);
    for (pid_t child : children_) waitpid(child, nullptr, 0);
    children_.clear();
  }
  std::vector<pid_t> children_;
};

// What ranks said, as one line: what several say is said once.
std::string said_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!trim(line).empty() && std::find(lines.begin(), lines.end(), line) == lines.end())
      lines.push_back(line);
  }
  return fmt::format("{}", fmt::join(lines, " | "));
}

bool is_on_path(const std::string& program) {
  for (const std::string& folder : split(process_env("PATH").value_or(""), ':')) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// Ranks of `horon run`, which find each other through it.
std::string run_on_hosts(const RankJob& job, const std::string& message,
                         const std::string& folder) {
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  std::vector<std::string> command = {
      program, "run", "-np", std::to_string(job.ranks), "--output-filename", folder + "/out"};
  command.insert(command.end(), job.run_flags.begin(), job.run_flags.end());
  command.push_back(program);
  command.insert(command.end(), job.arguments.begin(), job.arguments.end());
  command.insert(command.end(), {"--plan", message});
  Children children;
  children.start(command, folder + "/log");
  if (!children.wait())
    throw Error("the job failed: " + said_in(folder + "/log"), ExitCode::kLaunch);
  std::ifstream out(folder + "/out/rank.0/stdout");
  return {std::istreambuf_iterator<char>(out), {}};
}

}  // namespace

std::string run_ranks(const RankJob& job, const std::string& message) {
  const TempFolder folder("horon-ranks");
  if (!job.run_flags.empty()) return run_on_hosts(job, message, folder.path());
  const Deadline soon = Deadline::after(std::chrono::seconds(10));
  const auto store = make_file_store(folder.path() + "/store");
  store->set("plan", message, soon);
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  Children children;
  const std::string log = folder.path() + "/log";
  const int processes = job.mpirun.empty() ? job.ranks : 1;
  for (int rank = 0; rank < processes; ++rank) {
    std::vector<std::string> command = job.mpirun;
    command.push_back(program);
    command.insert(command.end(), job.arguments.begin(), job.arguments.end());
    command.insert(command.end(),
                   {"--size", std::to_string(job.ranks), "--store", folder.path() + "/store"});
    if (job.mpirun.empty()) command.insert(command.end(), {"--rank", std::to_string(rank)});
    children.start(command, log);
  }
  if (!children.wait()) throw Error("a rank failed: " + said_in(log), ExitCode::kLaunch);
  return store->get("result", soon);
}

std::vector<std::string> mpirun_command(const std::string& flavour, int ranks,
                                        const std::vector<std::string>& part_folders,
                                        std::string& why) {
  const std::string mpirun = is_on_path("mpirun." + flavour) ? "mpirun." + flavour : "mpirun";
  if (!is_on_path(mpirun)) {
    why = "mpirun is not installed";
    return {};
  }
  try {
    Part::open("mpi_" + flavour, part_folders);
  } catch (const UsageError& error) {
    why = error.what();
    return {};
  }
  std::vector<std::string> command = {mpirun, "-np", std::to_string(ranks)};
  if (flavour == "openmpi") {
    command.insert(command.end(), {"--oversubscribe", "--bind-to", "none"});
    if (geteuid() == 0) command.emplace_back("--allow-run-as-root");
  }
  return command;
}

}  // namespace horon::bench
