#include "horon/cli/bench_launch.h"

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
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/part.h"
#include "horon/cli/ranks.h"
#include "horon/cli/record.h"
#include "horon/comm/mpi/mpi_part.h"
#include "horon/launch/environment.h"
#include "horon/launch/process.h"
#include "horon/runtime/session.h"

namespace horon::cli {
namespace {

struct LaunchOptions {
  int rounds = 20;
  bool quick = false;
  std::string json;
  std::string mpi = "openmpi";
};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// A program of ours with its output in a pipe.
class Run {
 public:
  explicit Run(const std::vector<std::string>& command, bool quiet = false) {
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
  ~Run() {
    if (pid_ > 0) kill(pid_, SIGTERM);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  pid_t pid() const { return pid_; }
  int64_t start_ns() const { return start_ns_; }

  // All that it prints; Error if it does not end well.
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
  Run run(command);
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
  Run run({program, "run", "-np", "8", "sleep", "1000"}, /*quiet=*/true);
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

nlohmann::json spread(const std::string& way, int ranks, const std::vector<double>& ms) {
  std::cout << fmt::format("{:<8} {:>5} {:>9.1f} {:>9.1f} {:>9.1f}\n", way, ranks,
                           quantile(ms, 0.5), quantile(ms, 0.05), quantile(ms, 0.95));
  return {{"way", way},
          {"ranks", ranks},
          {"rounds", ms.size()},
          {"median_ms", quantile(ms, 0.5)},
          {"p5_ms", quantile(ms, 0.05)},
          {"p95_ms", quantile(ms, 0.95)}};
}

void run_launch(const LaunchOptions& options, const Globals& globals) {
  const Knobs knobs = globals.knobs();
  globals.export_to_ranks();
  check_writable(options.json);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const int rounds = options.quick ? 5 : options.rounds;
  std::string why;
  std::vector<std::string> mpirun =
      mpirun_command(options.mpi, 8, part_folders(knobs.text("parts")), why);
  if (mpirun.empty()) std::cout << "without mpirun: " << why << "\n";
  if (!mpirun.empty())
    mpirun.insert(mpirun.end(), {program, "bench", "first", "--mpi", options.mpi});
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int round = 0; round < rounds; ++round) {  // in turns: the machine's mood hits both
    ours.push_back(time_to_last({program, "run", "-np", "8", program, "bench", "first"}, 8));
    if (!mpirun.empty()) theirs.push_back(time_to_last(mpirun, 8));
  }
  std::vector<double> many;
  for (int round = 0; round < (options.quick ? 1 : 5); ++round)
    many.push_back(time_to_last({program, "run", "-np", "64", program, "bench", "first"}, 64));
  std::cout << "start to the first all-reduce (mpirun: MPI_Init and a barrier), milliseconds\n";
  std::cout << fmt::format("{:<8} {:>5} {:>9} {:>9} {:>9}\n", "way", "ranks", "median", "p5",
                           "p95");
  nlohmann::json results = nlohmann::json::array();
  results.push_back(spread("horon", 8, ours));
  if (!theirs.empty()) results.push_back(spread("mpirun", 8, theirs));
  results.push_back(spread("horon", 64, many));
  nlohmann::json summary = {{"first_allreduce_ms_8", quantile(ours, 0.5)},
                            {"start_64_s", quantile(many, 0.5) * 1e-3}};
  if (!theirs.empty()) summary["horon_over_mpirun_8"] = quantile(ours, 0.5) / quantile(theirs, 0.5);
  summary["idle_cpu_percent"] = idle_percent(program, std::chrono::seconds(options.quick ? 3 : 20));
  print_summary(summary);
  if (!options.json.empty()) write_file(options.json, make_record(results, summary).dump(1) + "\n");
}

// One rank of the above: says when it was done.
void run_first(const std::string& mpi) {
  const Knobs knobs = Knobs::resolve({}, process_env, "");
  const auto say_done = [] { std::cout << fmt::format("done {}\n", now_ns()) << std::flush; };
  if (!mpi.empty()) {
    mpi_exchange({mpi, -1, -1, part_folders(knobs.text("parts"))}, "");
    return say_done();
  }
  const Session session;
  std::array<float, 1> value = {1.0F};
  session.world().all_reduce(view_of(value), {.op = ReduceOp::kSum, .name = "first"});
  say_done();
  if (value[0] != static_cast<float>(session.size())) throw Error("the sum is wrong");
}

}  // namespace

void add_bench_launch(CLI::App& bench, Globals& globals) {
  auto* launch = bench.add_subcommand(
      "launch", "From `horon run` to the first all-reduce, against mpirun; what a job costs idle");
  auto options = std::make_shared<LaunchOptions>();
  launch->add_flag("--quick", options->quick, "fewer rounds, under 20 s");
  launch->add_option("--rounds", options->rounds, "of 8 ranks each")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  launch->add_option("--json", options->json, "write the record to this file");
  launch->add_option("--mpi", options->mpi, "openmpi or mpich")
      ->check(CLI::IsMember({"openmpi", "mpich"}))
      ->capture_default_str();
  add_knob_flags(*launch, globals);
  launch->callback([options, &globals] { run_launch(*options, globals); });

  auto* first = bench.add_subcommand("first", "")->group("");  // started by the above
  auto mpi = std::make_shared<std::string>();
  first->add_option("--mpi", *mpi);
  first->callback([mpi] { run_first(*mpi); });
}

}  // namespace horon::cli
