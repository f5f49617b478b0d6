#include "horon/launch/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "horon/base/error.h"
#include "horon/base/event_loop.h"
#include "horon/base/thread.h"
#include "horon/base/version.h"
#include "horon/launch/agent_message.h"
#include "horon/launch/environment.h"
#include "horon/launch/frame_pipe.h"
#include "horon/launch/process.h"
#include "horon/net/secret.h"

namespace horon::launch {
namespace {

constexpr auto kLastWords = std::chrono::seconds(2);  // between TERM and KILL without a launcher
constexpr auto kSilence =
    std::chrono::seconds(30);          // a launcher that sends nothing for this long is gone
constexpr size_t kBacklog = 1U << 20;  // of output that the launcher has not taken yet

constexpr int kNotStarted = static_cast<int>(ExitCode::kLaunch) << 8;  // as waitpid gives it
constexpr int kPiece = 32768;                                          // of output in one message

struct Rank {
  pid_t pid = -1;
  Fd out;
  Fd err;
};

class Agent {
 public:
  explicit Agent(const AgentOptions& options)
      : options_(options),
        signals_({SIGCHLD, SIGTERM, SIGINT, SIGHUP}),
        launcher_(loop_, options.in, options.out, "",
                  {[this](const std::string& frame) { handle(unpack_to_agent(frame)); },
                   [this](const std::string&) { leave(); }, [this] { hold_output(false); }}) {
    loop_.watch(signals_.fd(), EPOLLIN, [this](uint32_t) { on_signal(); });
    if (options.guardian > 0) watch_guardian(options.guardian);
    hear();
  }

  int run() {
    std::string name(256, '\0');
    gethostname(name.data(), name.size() - 1);
    launcher_.send_raw(kAgentMagic);
    say(AgentHello{kVersion, name.c_str(), process_env_or_empty("SSH_CONNECTION")});
    loop_.run();
    end_descendants();
    std::error_code ignored;
    std::filesystem::remove_all(options_.folder, ignored);
    return 0;
  }

 private:
  static std::string process_env_or_empty(const char* name) {
    const Environment all = process_environment();
    const auto found = all.find(name);
    return found == all.end() ? "" : found->second;
  }

  void watch_guardian(int guardian) {
    guardian_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, guardian, 0)));
    if (!guardian_ || getppid() != guardian) return loop_.stop();
    loop_.watch(guardian_.get(), EPOLLIN, [this](uint32_t) { loop_.stop(); });
  }

  void hear() {
    if (!options_.expects_pings) return;
    loop_.cancel(silence_);
    silence_ = loop_.after(kSilence, [this] { leave(); });
  }

  // --- from the launcher

  void handle(const ToAgent& message) {
    hear();
    if (const auto* start = std::get_if<StartRanks>(&message)) {
      try {
        start_ranks(*start);
      } catch (const Error& error) {  // the secret cannot be stored: no rank was started
        for (const RankPlacement& placement : start->placements)
          say(RankEnded{placement.rank, kNotStarted, error.what()});
      }
    }
    if (const auto* signal = std::get_if<SignalRanks>(&message)) signal_ranks(signal->signal);
    if (std::holds_alternative<EndRanks>(message)) end_ranks();
  }

  void start_ranks(const StartRanks& start) {
    Environment common = process_environment();
    const bool threads_given = common.contains("OMP_NUM_THREADS");
    common.erase("HORON_TERMINAL");
    for (const auto& [name, value] : parse_environment(start.environment)) common[name] = value;
    const bool threads_sent = parse_environment(start.environment).contains("OMP_NUM_THREADS");
    common["HORON_SECRET_FILE"] = options_.folder + "/secret";
    write_private_file(common["HORON_SECRET_FILE"], start.secret + "\n");
    common["HORON_AGENT_ID"] = to_hex(random_bytes(8));
    const std::vector<int> cores = usable_cores();
    for (const RankPlacement& placement : start.placements) {
      Environment environment = common;
      for (const auto& [name, value] :
           rank_environment(placement, start.host, static_cast<int>(cores.size()))) {
        if (name != "OMP_NUM_THREADS" || !(threads_given || threads_sent))
          environment[name] = value;
      }
      Spawn what;
      what.command = start.command;
      what.environment = flatten(environment);
      what.folder = start.folder;
      if (start.bind) what.cores = cores_of_rank(cores, placement.local_rank, placement.local_size);
      start_rank(placement.rank, std::move(what));
    }
  }

  void start_rank(int number, Spawn what) {
    int out[2];
    int err[2];
    if (pipe2(out, O_CLOEXEC) != 0)
      return say(RankEnded{number, kNotStarted, "out of descriptors"});
    Fd out_read(out[0]);
    const Fd out_write(out[1]);
    if (pipe2(err, O_CLOEXEC) != 0)
      return say(RankEnded{number, kNotStarted, "out of descriptors"});
    Fd err_read(err[0]);
    const Fd err_write(err[1]);
    // A rank whose stdout is this very pipe, not a file or another pipe, has a terminal at its end.
    for (std::string& pair : what.environment) {
      if (pair == "HORON_TERMINAL=1") pair = "HORON_TERMINAL=" + file_identity(out_write.get());
    }
    what.out = out_write.get();
    what.err = err_write.get();
    try {
      Rank rank;
      rank.pid = spawn(what);
      rank.out = std::move(out_read);
      rank.err = std::move(err_read);
      for (const Fd* pipe : {&rank.out, &rank.err}) {
        const int fd = pipe->get();
        set_nonblocking(fd);
        loop_.watch(fd, EPOLLIN, [this, number, fd](uint32_t) { relay(number, fd); });
      }
      say(RankStarted{number, rank.pid});
      ranks_[number] = std::move(rank);
    } catch (const Error& error) {
      say(RankEnded{number, kNotStarted, error.what()});
    }
  }

  // Every process in a rank's process group gets the signal, once.
  void signal_ranks(int signal) {
    for (const auto& [number, rank] : ranks_) {
      if (rank.pid > 0) kill(-rank.pid, signal);
    }
  }

  // Ends what ranks have left behind, too, and tells of each end as usual.
  void end_ranks() {
    for (const auto& [number, rank] : ranks_) {
      if (rank.pid > 0) kill(-rank.pid, SIGKILL);
    }
  }

  // The launcher is gone: no message can arrive any more.
  void leave() {
    if (leaving_) return;
    leaving_ = true;
    signal_ranks(SIGTERM);
    const bool any = std::any_of(ranks_.begin(), ranks_.end(),
                                 [](const auto& entry) { return entry.second.pid > 0; });
    if (!any) return loop_.stop();
    loop_.after(kLastWords, [this] { loop_.stop(); });
  }

  // --- from the ranks

  void on_signal() {
    while (const int signal = signals_.next()) {
      if (signal != SIGCHLD) leave();
    }
    int status = 0;
    while (true) {
      const pid_t ended = waitpid(-1, &status, WNOHANG);
      if (ended <= 0) break;
      for (auto& [number, rank] : ranks_) {
        if (rank.pid == ended) on_end(number, rank, status);
      }
    }
    const bool all_ended = std::all_of(ranks_.begin(), ranks_.end(),
                                       [](const auto& entry) { return entry.second.pid < 0; });
    if (leaving_ && all_ended) loop_.stop();
  }

  void on_end(int number, Rank& rank, int status) {
    rank.pid = -1;
    // Its output is in the pipes; a child that it left behind may continue to write without end.
    for (Fd* pipe : {&rank.out, &rank.err}) {
      int left = 0;
      if (*pipe) ioctl(pipe->get(), FIONREAD, &left);
      for (; left > 0 && *pipe; left -= kPiece) {
        if (!relay(number, pipe->get())) break;
      }
    }
    say(RankEnded{number, status, ""});
  }

  // Forwards available output; false at its end.
  bool relay(int number, int fd) {
    char piece[kPiece];
    const ssize_t got = read(fd, piece, sizeof(piece));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    Rank& rank = ranks_[number];
    if (got <= 0) {
      loop_.forget(fd);
      (rank.out.get() == fd ? rank.out : rank.err).reset();
      return false;
    }
    say(RankOutput{number, rank.err.get() == fd, std::string(piece, static_cast<size_t>(got))});
    if (launcher_.unsent() > kBacklog) hold_output(true);
    return true;
  }

  // If the launcher's terminal is stuck, ranks that write block; no memory fills up.
  void hold_output(bool hold) {
    if (held_ == hold) return;
    held_ = hold;
    for (const auto& [number, rank] : ranks_) {
      for (const Fd* pipe : {&rank.out, &rank.err}) {
        if (*pipe) loop_.change(pipe->get(), hold ? 0U : static_cast<uint32_t>(EPOLLIN));
      }
    }
  }

  void say(const FromAgent& message) { launcher_.send(pack(message)); }

  AgentOptions options_;
  SignalFd signals_;
  EventLoop loop_;
  FramePipe launcher_;
  Fd guardian_;
  std::map<int, Rank> ranks_;
  EventLoop::Timer silence_ = 0;
  bool leaving_ = false;
  bool held_ = false;
};

}  // namespace

int run_agent(const AgentOptions& options) {
  setsid();  // signals of the launcher's terminal are the launcher's business
  prctl(PR_SET_NAME, "horon-agent");
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  adopt_orphans();
  return Agent(options).run();
}

int run_guarded_agent() {
  adopt_orphans();
  signal(SIGPIPE, SIG_IGN);
  const TempFolder folder("horon-job");  // removed here, too, should the agent be killed
  const AgentOptions options{STDIN_FILENO, STDOUT_FILENO, getpid(), true, folder.path()};
  const pid_t agent = fork();
  if (agent < 0) throw io_error("fork");
  if (agent == 0) _exit(run_agent(options));
  prctl(PR_SET_NAME, "horon-guard");
  // The launcher must see the end of the agent's stream when the agent ends, not when we do.
  close(STDIN_FILENO);
  close(STDOUT_FILENO);
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended == agent || (ended < 0 && errno != EINTR)) break;
  }
  end_descendants();
  return exit_status(status);
}

}  // namespace horon::launch
