#include "horon/launch/mpi_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "horon/base/error.h"
#include "horon/base/event_loop.h"
#include "horon/base/job_settings.h"
#include "horon/base/text.h"
#include "horon/launch/process.h"

namespace horon::launch {
namespace {

// Lines of mpirun, given to the ranks that wrote them.
class MpiJob {
 public:
  MpiJob(const JobPlan& plan, const std::vector<std::string>& command, MpiKind kind)
      : kind_(kind), signals_({SIGINT, SIGTERM, SIGHUP, SIGCHLD}), output_(plan.output, [] {}) {
    Environment environment = process_environment();
    for (const auto& [name, value] : mpirun_environment(plan, kind)) environment[name] = value;
    int out[2];
    int err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw io_error("pipe");
    out_ = Fd(out[0]);
    err_ = Fd(err[0]);
    const Fd out_write(out[1]);
    const Fd err_write(err[1]);
    Spawn what;
    what.command = command;
    what.environment = flatten(environment);
    what.folder = plan.folder;
    what.out = out_write.get();
    what.err = err_write.get();
    what.death_signal = SIGTERM;  // mpirun ends its ranks on SIGTERM, not on SIGKILL
    pid_ = spawn(what);
  }

  int run() {
    for (const bool is_error : {false, true}) {
      const int fd = (is_error ? err_ : out_).get();
      set_nonblocking(fd);
      loop_.watch(fd, EPOLLIN, [this, fd, is_error](uint32_t) { relay(fd, is_error); });
    }
    loop_.watch(signals_.fd(), EPOLLIN, [this](uint32_t) { on_signal(); });
    while (!ended_) loop_.run_once(Deadline::never());
    for (const bool is_error : {false, true}) {
      while (relay((is_error ? err_ : out_).get(), is_error)) {
      }
      if (const auto rest = (is_error ? err_lines_ : out_lines_).rest()) print(*rest, is_error);
    }
    end_descendants();
    if (signal_count_ == 1) return static_cast<int>(ExitCode::kInterrupted);
    if (status_ != 0) output_.say("horon run: mpirun " + describe_status(status_));
    return exit_status(status_);
  }

 private:
  bool relay(int fd, bool is_error) {
    char piece[32768];
    const ssize_t got = read(fd, piece, sizeof(piece));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      loop_.forget(fd);
      return false;
    }
    LineCutter& cutter = is_error ? err_lines_ : out_lines_;
    for (const std::string& line : cutter.feed({piece, static_cast<size_t>(got)}, Clock::now()))
      print(line, is_error);
    if (cutter.held() > kUnfinished) print(*cutter.rest(), is_error);
    return true;
  }

  void print(const std::string& line, bool is_error) {
    const std::vector<TaggedPiece> pieces = parse_tagged_line(line, kind_);
    if (pieces.empty()) return output_.say(line);
    for (const TaggedPiece& piece : pieces)
      output_.write(piece.rank, piece.is_error || is_error, piece.text);
    output_.write(pieces.back().rank, pieces.back().is_error || is_error, "\n");
  }

  void on_signal() {
    while (const int signal = signals_.next()) {
      if (signal == SIGCHLD) {
        ended_ = ended_ || waitpid(pid_, &status_, WNOHANG) == pid_;
      } else if (++signal_count_ == 1) {
        kill(pid_, signal == SIGHUP ? SIGTERM : signal);  // mpirun passes it on
      } else {
        kill(pid_, SIGKILL);
      }
    }
  }

  MpiKind kind_;
  SignalFd signals_;
  EventLoop loop_;
  Output output_;
  LineCutter out_lines_;
  LineCutter err_lines_;
  Fd out_;
  Fd err_;
  pid_t pid_ = -1;
  int status_ = 0;
  int signal_count_ = 0;
  bool ended_ = false;
};

constexpr size_t kLongestTag = 40;

// How long the tag is that `text` begins with; 0 if it does not. Fills in whose it is.
size_t read_tag(const std::string& text, MpiKind kind, TaggedPiece& piece) {
  int job = 0;
  int used = 0;
  char stream[8] = {};
  const bool read =
      kind == MpiKind::kOpenMpi
          ? std::sscanf(text.c_str(), "[%d,%d]<%6[a-z]>:%n", &job, &piece.rank, stream, &used) == 3
          : std::sscanf(text.c_str(), "[%d] %n", &piece.rank, &used) == 1;
  piece.is_error = std::strcmp(stream, "stderr") == 0;
  return read && piece.rank >= 0 ? static_cast<size_t>(used) : 0;
}

bool uses_ssh(const JobPlan& plan) {
  return plan.hosts.size() > 1 || !is_local_host(plan.hosts.front().name);
}

// What mpirun's ssh is to be given, in one text that mpirun cuts at its spaces; `variable` of ours
// may hold more of it. Files by their full paths: mpirun runs in the job's folder.
std::string ssh_text(const JobPlan& plan, const char* variable) {
  SshOptions ssh = plan.ssh;
  for (std::string* path : {&ssh.config_file, &ssh.identity_file}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).string();
  }
  const std::vector<std::string> words = ssh_arguments(ssh);
  for (const std::string& word : words)
    require(word.find_first_of(" \t") == word.npos,
            fmt::format("--mpi: mpirun cannot give ssh an argument with a space: '{}'", word));
  const std::string more = process_env(variable).value_or("");
  return words.empty()
             ? ""
             : fmt::format("{}{}{}", fmt::join(words, " "), more.empty() ? "" : " ", more);
}

}  // namespace

MpiKind find_mpi() {
  const std::string said = output_of({"mpirun", "--version"});
  if (said.find("Open MPI") != said.npos || said.find("OpenRTE") != said.npos)
    return MpiKind::kOpenMpi;
  if (said.find("HYDRA") != said.npos || said.find("MPICH") != said.npos) return MpiKind::kMpich;
  throw UsageError("--mpi: the mpirun on PATH is neither Open MPI's nor MPICH's",
                   ExitCode::kLaunch);
}

std::vector<std::string> mpirun_command(const JobPlan& plan, const MpiStart& start, MpiKind kind) {
  std::vector<std::string> command = {"mpirun", "-np", std::to_string(plan.placements.size())};
  const auto add = [&](std::initializer_list<std::string> words) {
    command.insert(command.end(), words);
  };
  std::vector<std::string> hosts;
  for (const Host& host : plan.hosts) hosts.push_back(fmt::format("{}:{}", host.name, host.slots));
  const bool remote = uses_ssh(plan);
  std::vector<std::string> names;
  for (const auto& [name, value] : process_environment()) {
    if (travels(name, plan.exports)) names.push_back(name);
  }
  for (const auto& [name, value] : plan.environment) names.push_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (kind == MpiKind::kOpenMpi) {
    if (geteuid() == 0) add({"--allow-run-as-root"});
    add({"--tag-output"});
    if (remote) {
      add({"--host", fmt::format("{}", fmt::join(hosts, ","))});
      const std::string ssh = ssh_text(plan, "OMPI_MCA_plm_rsh_args");
      if (!ssh.empty()) add({"--mca", "plm_rsh_args", ssh});
    } else {
      add({"--oversubscribe"});
    }
    if (start.binds) add({"--bind-to", "none"});
    for (const std::string& name : names) add({"-x", name});  // names only: values stay off argv
  } else {
    add({"-prepend-rank"});
    if (remote) add({"-hosts", fmt::format("{}", fmt::join(hosts, ","))});
    if (!names.empty()) add({"-envlist", fmt::format("{}", fmt::join(names, ","))});
  }
  command.insert(command.end(), start.extra.begin(), start.extra.end());
  std::vector<int> ranks_of_hosts(plan.hosts.size());
  for (const RankPlacement& placement : plan.placements)
    ++ranks_of_hosts[static_cast<size_t>(placement.cross_rank)];
  add({start.program, "mpi-rank", "--hosts", fmt::format("{}", fmt::join(ranks_of_hosts, ",")),
       "--"});
  command.insert(command.end(), plan.command.begin(), plan.command.end());
  return command;
}

Environment mpirun_environment(const JobPlan& plan, MpiKind kind) {
  Environment environment = plan.environment;
  if (kind == MpiKind::kMpich && uses_ssh(plan)) {
    const std::string ssh = ssh_text(plan, "HYDRA_LAUNCHER_EXTRA_ARGS");
    if (!ssh.empty()) environment["HYDRA_LAUNCHER_EXTRA_ARGS"] = ssh;
  }
  return environment;
}

bool find_host(RankPlacement& placement, const std::vector<int>& ranks_of_hosts) {
  int first = 0;
  for (size_t host = 0; host < ranks_of_hosts.size(); ++host) {
    const int count = ranks_of_hosts[host];
    if (placement.rank < first + count) {
      if (placement.local_size != count || placement.local_rank != placement.rank - first)
        return false;
      placement.cross_rank = static_cast<int>(host);
      placement.cross_size = static_cast<int>(ranks_of_hosts.size());
      return true;
    }
    first += count;
  }
  return false;
}

std::vector<TaggedPiece> parse_tagged_line(const std::string& line, MpiKind kind) {
  std::vector<TaggedPiece> pieces;
  for (size_t at = 0; at < line.size();) {
    TaggedPiece piece;
    const bool may_be_tag = pieces.empty() || kind == MpiKind::kOpenMpi;
    const size_t tag = may_be_tag ? read_tag(line.substr(at, kLongestTag), kind, piece) : 0;
    if (tag > 0) pieces.push_back(piece);
    if (pieces.empty()) break;
    const size_t next = std::min(line.find('[', tag > 0 ? at + tag : at + 1), line.size());
    pieces.back().text.append(line, at + tag, next - at - tag);
    at = next;
  }
  return pieces;
}

std::string describe_mpi(const JobPlan& plan, const MpiStart& start) {
  const MpiKind kind = find_mpi();
  std::vector<std::string> words;
  for (const auto& [name, value] : mpirun_environment(plan, kind))
    words.push_back(fmt::format("{}={}", name, quote_for_shell(value)));
  for (const std::string& word : mpirun_command(plan, start, kind))
    words.push_back(quote_for_shell(word));
  return fmt::format("{}\n", fmt::join(words, " "));
}

int run_mpi_job(const JobPlan& plan, const MpiStart& start) {
  const LeaveOnSignal leave;  // but for the time in which the job takes signals itself
  const MpiKind kind = find_mpi();
  adopt_orphans();
  signal(SIGPIPE, SIG_IGN);
  return MpiJob(plan, mpirun_command(plan, start, kind), kind).run();
}

int become_mpi_rank(const std::vector<std::string>& command,
                    const std::vector<int>& ranks_of_hosts) {
  require(!command.empty(), "mpi-rank: no program");
  // An mpirun that is terminated while it starts its ranks can leave them behind.
  const pid_t mpirun = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != mpirun)
    throw Error("mpi-rank: mpirun ended before this rank began", ExitCode::kLaunch);
  const bool open_mpi = process_env("OMPI_COMM_WORLD_RANK").has_value();
  const auto number = [&](const char* ompi, const char* mpich, int fallback) {
    const auto text = process_env(open_mpi ? ompi : mpich);
    return text ? static_cast<int>(parse_integer(*text, open_mpi ? ompi : mpich, 0, 1 << 20))
                : fallback;
  };
  RankPlacement placement;
  placement.rank = number("OMPI_COMM_WORLD_RANK", "PMI_RANK", -1);
  placement.size = number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", -1);
  require(placement.rank >= 0 && placement.size > 0, "mpi-rank: not started by mpirun");
  placement.local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", placement.rank);
  placement.local_size =
      std::max(1, number("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", placement.size));
  const bool known = find_host(placement, ranks_of_hosts);
  const Environment given = process_environment();
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  for (const auto& [name, value] : rank_environment(placement, "", cores)) {
    if (name.ends_with("HOSTNAME") || (name == "OMP_NUM_THREADS" && given.contains(name))) continue;
    if (!known && name.find("_CROSS_") != name.npos) {  // no number is better than a wrong one
      unsetenv(name.c_str());
      continue;
    }
    setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw UsageError(fmt::format("cannot run '{}': {}", command.front(), std::strerror(errno)),
                   ExitCode::kLaunch);
}

}  // namespace horon::launch
