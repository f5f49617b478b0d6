#include "horon/bench/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/job_settings.h"
#include "horon/base/part.h"
#include "horon/bench/ranks.h"
#include "horon/bench/record.h"
#include "horon/comm/mpi/mpi_part.h"
#include "horon/launch/environment.h"
#include "horon/launch/process.h"
#include "horon/runtime/session.h"

namespace horon::bench {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// A program of ours with its output in a pipe.
class LaunchedJob {
 public:
  explicit LaunchedJob(const std::vector<std::string>& command, bool quiet = false) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw io_error("pipe");
    out_ = Fd(ends[0]);
    const Fd write_end(ends[1]);
    launch::Spawn what;
    what.command = command;
    what.environment = launch::flatten(launch::process_environment());
    what.out = write_end.get();
    const Fd nowhere(quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1);
    what.err = nowhere.get();
    start_ns_ = now_ns();
    pid_ = launch::spawn(what);
  }
  ~LaunchedJob() {
    if (pid_ > 0) kill(pid_, SIGTERM);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  LaunchedJob(const LaunchedJob&) = delete;
  LaunchedJob& operator=(const LaunchedJob&) = delete;
  pid_t pid() const { return pid_; }
  int64_t start_ns() const { return start_ns_; }

  // Returns its output; Error if it fails.
  std::string finish(const std::string& what) {
    std::string text;
    char piece[4096];
    for (ssize_t got = 1; got > 0;) {
      got = read(out_.get(), piece, sizeof(piece));
      if (got > 0) text.append(piece, static_cast<size_t>(got));
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    if (status != 0)
      throw Error(fmt::format("{} {}", what, launch::describe_status(status)), ExitCode::kLaunch);
    return text;
  }

 private:
  Fd out_;
  pid_t pid_ = -1;
  int64_t start_ns_ = 0;
};

// Milliseconds from the start of the command until the last of `ranks` ranks had said "done".
double time_to_last(const std::vector<std::string>& command, int ranks) {
  LaunchedJob run(command);
  const int64_t start = run.start_ns();
  const std::string text = run.finish(command.front());
  int64_t last = 0;
  int count = 0;
  for (size_t at = text.find("done "); at != std::string::npos; at = text.find("done ", at + 1)) {
    last = std::max<int64_t>(last, std::stoll(text.substr(at + 5)));
    ++count;
  }
  if (count != ranks)
    throw Error(fmt::format("{} of {} ranks finished", count, ranks), ExitCode::kLaunch);
  return static_cast<double>(last - start) * 1e-6;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

// Nanoseconds on a core of a process and its threads.
int64_t cpu_ns(pid_t pid) {
  int64_t sum = 0;
  std::error_code ignored;
  for (const auto& task :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ignored)) {
    int64_t ns = 0;
    std::ifstream(task.path() / "schedstat") >> ns;
    sum += ns;
  }
  if (sum == 0) throw IoError("this kernel does not count the time of processes (schedstat)");
  return sum;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/children", pid, pid));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

// Percent of one core that launcher and agent use while their ranks sleep.
double idle_percent(const std::string& program, std::chrono::seconds window) {
  LaunchedJob run({program, "run", "-np", "8", "sleep", "1000"}, /*quiet=*/true);
  const auto ranks_are_up = [&] {
    const auto agents = children_of(run.pid());
    return !agents.empty() && children_of(agents.front()).size() == 8;
  };
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!ranks_are_up() && !deadline.passed()) std::this_thread::sleep_for(Milliseconds(10));
  if (!ranks_are_up()) throw Error("the idle job did not start", ExitCode::kLaunch);
  std::this_thread::sleep_for(Milliseconds(500));
  const auto used = [&] { return cpu_ns(run.pid()) + cpu_ns(children_of(run.pid()).front()); };
  const int64_t before = used();
  const int64_t start = now_ns();
  std::this_thread::sleep_for(window);  // this is the measurement
  return 100.0 * static_cast<double>(used() - before) / static_cast<double>(now_ns() - start);
}

nlohmann::json spread(const std::string& way, int ranks, const std::vector<double>& ms,
                      const Say& say) {
  say(fmt::format("{:<8} {:>5} {:>9.1f} {:>9.1f} {:>9.1f}", way, ranks, quantile(ms, 0.5),
                  quantile(ms, 0.05), quantile(ms, 0.95)));
  return {{"way", way},
          {"ranks", ranks},
          {"rounds", ms.size()},
          {"median_ms", quantile(ms, 0.5)},
          {"p5_ms", quantile(ms, 0.05)},
          {"p95_ms", quantile(ms, 0.95)}};
}

}  // namespace

Results run_launch(const LaunchOptions& options, const std::vector<std::string>& folders,
                   const Say& say) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const int rounds = options.quick ? 5 : options.rounds;
  std::string why;
  std::vector<std::string> mpirun = mpirun_command(options.mpi, 8, folders, why);
  if (mpirun.empty()) say("without mpirun: " + why);
  if (!mpirun.empty())
    mpirun.insert(mpirun.end(), {program, "bench", "first", "--mpi", options.mpi});
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int round = 0; round < rounds; ++round) {  // alternating, so that noise affects both
    ours.push_back(time_to_last({program, "run", "-np", "8", program, "bench", "first"}, 8));
    if (!mpirun.empty()) theirs.push_back(time_to_last(mpirun, 8));
  }
  std::vector<double> many;
  for (int round = 0; round < (options.quick ? 1 : 5); ++round)
    many.push_back(time_to_last({program, "run", "-np", "64", program, "bench", "first"}, 64));
  say("start to the first all-reduce (mpirun: MPI_Init and a barrier), milliseconds");
  say(fmt::format("{:<8} {:>5} {:>9} {:>9} {:>9}", "method", "ranks", "median", "p5", "p95"));
  nlohmann::json results = nlohmann::json::array();
  results.push_back(spread("horon", 8, ours, say));
  if (!theirs.empty()) results.push_back(spread("mpirun", 8, theirs, say));
  results.push_back(spread("horon", 64, many, say));
  nlohmann::json summary = {{"first_allreduce_ms_8", quantile(ours, 0.5)},
                            {"start_64_s", quantile(many, 0.5) * 1e-3}};
  if (!theirs.empty()) summary["horon_over_mpirun_8"] = quantile(ours, 0.5) / quantile(theirs, 0.5);
  summary["idle_cpu_percent"] = idle_percent(program, std::chrono::seconds(options.quick ? 3 : 20));
  return {results, summary};
}

void run_first(const std::string& mpi, const Say& say) {
  const JobSettings job_settings = JobSettings::resolve({}, process_env, "");
  const auto say_done = [&] { say(fmt::format("done {}", now_ns())); };
  if (!mpi.empty()) {
    mpi_exchange({mpi, -1, -1, part_folders(job_settings.text("parts"))}, "");
    return say_done();
  }
  const Session session;
  std::array<float, 1> value = {1.0F};
  session.world().all_reduce(view_of(value), {.op = ReduceOp::kSum, .name = "first"});
  say_done();
  if (value[0] != static_cast<float>(session.size())) throw Error("the sum is wrong");
}

}  // namespace horon::bench
