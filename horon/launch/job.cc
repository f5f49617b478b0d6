#include "horon/launch/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/event_loop.h"
#include "horon/base/version.h"
#include "horon/launch/host_link.h"
#include "horon/launch/process.h"
#include "horon/launch/verdict.h"
#include "horon/net/membership.h"
#include "horon/net/secret.h"
#include "horon/net/store_server.h"

namespace horon::launch {
namespace {

constexpr auto kPing = std::chrono::seconds(5);
constexpr auto kFarewell = std::chrono::seconds(4);  // for agents to clean up
constexpr auto kBriefly = std::chrono::seconds(1);   // the same, for agents without ranks
// Time for the rank that a witness has lost to report its own error and end.
constexpr auto kHearOut = std::chrono::seconds(2);

class Launcher {
 public:
  // Agents of this host are forks: they start before anything that a fork should not inherit.
  explicit Launcher(const JobPlan& plan) : plan_(plan) {
    const std::vector<bool> local = find_local_hosts();
    // A launcher that sleeps would be taken for dead by the agents of other hosts.
    if (std::find(local.begin(), local.end(), false) != local.end()) signal(SIGTSTP, SIG_IGN);
    std::vector<int> forked = {signals_->fd()};
    for (size_t i = 0; i < plan.hosts.size(); ++i) {
      links_.push_back(std::make_unique<HostLink>(plan, plan.hosts[i], local[i], forked));
      const auto more = links_.back()->descriptors();
      forked.insert(forked.end(), more.begin(), more.end());
    }
    loop_ = std::make_unique<EventLoop>();
    output_ =
        std::make_unique<Output>(plan.output, [this] { loop_->post([this] { pause(false); }); });
    // Our own lines take their turn behind those of the ranks.
    log_ = Log(plan.log_level, "launcher", [this](const std::string& line) { output_->say(line); });
    loop_->watch(signals_->fd(), EPOLLIN, [this](uint32_t) { on_signal(); });
    for (auto& link : links_) connect(*link);
  }

  ~Launcher() {
    links_.clear();
    end_descendants();
    signals_.reset();  // from here on a signal ends us, even if the terminal is stuck
    output_.reset();
  }

  int run() {
    server_ = std::make_unique<StoreServer>(*loop_, secret_, server_options(), log_);
    start_timer_ = loop_->after(plan_.start_timeout, [this] { on_start_timeout(); });
    ping();
    while (!finished_) loop_->run_once(Deadline::never());
    farewell();
    server_.reset();
    return report();
  }

 private:
  // Names may take long to look up, and nothing wakes us from that but the end; afterwards signals
  // wait for the loop.
  std::vector<bool> find_local_hosts() {
    const LeaveOnSignal leave;
    std::vector<bool> local;
    for (const Host& host : plan_.hosts) local.push_back(is_local_host(host.name));
    signals_ = std::make_unique<SignalFd>(std::initializer_list<int>{SIGINT, SIGTERM, SIGHUP});
    return local;
  }

  StoreServer::Options server_options() const {
    StoreServer::Options options;
    options.port = plan_.port;
    return options;
  }

  void connect(HostLink& link) {
    link.connect(*loop_, {[this, &link](const FromAgent& message) { on_message(link, message); },
                          [this, &link] { on_agent_end(link); }});
  }

  void ping() {
    const bool remote = std::any_of(links_.begin(), links_.end(),
                                    [](const auto& link) { return !link->is_local(); });
    if (!remote) return;
    loop_->after(kPing, [this] {
      for (auto& link : links_) {
        if (!link->is_local() && !link->has_ended()) link->send(StillHere{});
      }
      ping();
    });
  }

  // --- starting

  void on_message(HostLink& link, const FromAgent& message) {
    if (const auto* hello = std::get_if<AgentHello>(&message)) on_hello(link, *hello);
    if (const auto* started = std::get_if<RankStarted>(&message)) {
      pids_[started->rank] = started->pid;
      log_.info("rank {} is process {} on {}", started->rank, started->pid, link.host().name);
    }
    if (const auto* output = std::get_if<RankOutput>(&message)) {
      output_->write(output->rank, output->is_error, output->bytes);
      if (output_->is_full()) pause(true);
    }
    if (const auto* ended = std::get_if<RankEnded>(&message)) on_rank_end(link, *ended);
  }

  void on_hello(HostLink& link, const AgentHello& hello) {
    if (hello.version != kVersion) {
      fail_host(link, fmt::format("horon {} is there, {} here; install the same", hello.version,
                                  kVersion));
      link.close_input();
      return;
    }
    log_.info("agent on {} ({}) is ready", link.host().name, hello.host_name);
    if (!link.is_local()) reach_from(link, hello.ssh_connection);
    ready_.insert(&link);
    if (ready_.size() + lost_.size() == links_.size()) start_all();
  }

  // The address that this connection uses is one at which the other host reaches us.
  void reach_from(const HostLink& link, const std::string& ssh_connection) {
    std::istringstream words(ssh_connection);
    std::string ours;
    words >> ours;
    if (!plan_.interface.empty()) {
      ours = resolve_interface(plan_.interface);
    } else if (ours.empty() || !is_own_address(ours)) {
      const std::string name = link.host().name.substr(link.host().name.find('@') + 1);
      ours = source_address(resolve_host(name).front());
    }
    server_->add_address(ours);
  }

  void start_all() {
    loop_->cancel(start_timer_);
    if (!lost_.empty()) return finish();
    started_ = true;
    for (auto& link : links_) link->send(start_message(*link));
  }

  StartRanks start_message(const HostLink& link) const {
    StartRanks start;
    start.secret = secret_.reveal_hex();
    start.host = link.host().name;
    start.folder = plan_.folder;
    start.command = plan_.command;
    start.bind = plan_.bind;
    Environment environment;
    if (!link.is_local()) {
      for (const auto& [name, value] : process_environment()) {
        if (travels(name, plan_.exports)) environment[name] = value;
      }
    }
    for (const auto& [name, value] : plan_.environment) environment[name] = value;
    environment.erase("HORON_TERMINAL");
    if (shows_bars(plan_.output)) environment["HORON_TERMINAL"] = "1";
    std::vector<Endpoint> endpoints;
    for (const Endpoint& endpoint : server_->endpoints()) {
      if (is_loopback(endpoint.host) == link.is_local()) endpoints.push_back(endpoint);
    }
    if (endpoints.empty()) endpoints = server_->endpoints();  // ssh to this very host
    environment["HORON_RENDEZVOUS"] = format_endpoints(endpoints);
    start.environment = flatten(environment);
    const auto number =
        static_cast<int>(std::find_if(links_.begin(), links_.end(),
                                      [&](const auto& at) { return at.get() == &link; }) -
                         links_.begin());
    for (const RankPlacement& placement : plan_.placements) {
      if (placement.cross_rank == number) start.placements.push_back(placement);
    }
    return start;
  }

  void on_start_timeout() {
    for (auto& link : links_) {
      if (!ready_.contains(link.get()) && !lost_.contains(link.get()))
        fail_host(*link, fmt::format("timed out: no agent answered within {}; is the host up, and "
                                     "its sshd? (--start-timeout)",
                                     format_duration(plan_.start_timeout)));
    }
    finish();
  }

  void fail_host(const HostLink& link, const std::string& why) {
    if (lost_.insert(&link).second)
      problems_.push_back(fmt::format("{}: {}", link.host().name, why));
  }

  // --- running

  void on_rank_end(const HostLink& link, const RankEnded& ended) {
    const RankFailure failure = {ended.rank, link.host().name, ended.status, ended.problem, sent_};
    output_->finish(ended.rank, is_misuse(failure) || ended_as_told(failure));
    ended_.insert(ended.rank);
    if (ended.status != 0) {
      failures_.push_back(failure);
      if (signal_count_ == 0) is_witness(failures_.back()) ? hear_out() : tell_others();
    }
    if (ended_.size() == plan_.placements.size()) finish();
  }

  void hear_out() {
    loop_->after(kHearOut, [this] { tell_others(); });
  }

  void tell_others() {
    if (std::exchange(told_, true)) return;
    signal_all(SIGTERM);
    loop_->after(plan_.grace, [this] { end_hard(); });
  }

  void signal_all(int signal) {
    sent_.push_back(signal);
    send_all(SignalRanks{signal});
  }

  void end_hard() {
    sent_.push_back(SIGKILL);
    send_all(EndRanks{});
    // Agents that do not answer: their guardians do the rest when we are gone.
    loop_->after(kFarewell, [this] { finish(); });
  }

  void on_agent_end(HostLink& link) {
    const bool all_done =
        std::all_of(plan_.placements.begin(), plan_.placements.end(), [&](const RankPlacement& p) {
          return links_[static_cast<size_t>(p.cross_rank)].get() != &link ||
                 ended_.contains(p.rank);
        });
    if (leaving_ || (started_ && all_done)) return;
    fail_host(link, link.why());
    if (!started_) {
      if (ready_.size() + lost_.size() == links_.size()) finish();
      return;
    }
    for (const RankPlacement& placement : plan_.placements) {
      if (links_[static_cast<size_t>(placement.cross_rank)].get() != &link) continue;
      if (!ended_.insert(placement.rank).second) continue;
      // Ranks of a killed agent of this host are now our children; of another, its guardian's.
      if (link.is_local() && pids_.contains(placement.rank)) kill(-pids_[placement.rank], SIGKILL);
    }
    tell_others();
    if (ended_.size() == plan_.placements.size()) finish();
  }

  void on_signal() {
    while (const int signal = signals_->next()) {
      ++signal_count_;
      if (signal_count_ == 1) {
        if (!started_) return finish();
        log_.info("signal {}: passed on to the ranks", signal);
        signal_all(signal == SIGHUP ? SIGTERM : signal);
        loop_->after(plan_.stop_grace, [this] { end_hard(); });
      } else {
        end_hard();
      }
    }
  }

  void send_all(const ToAgent& message) {
    for (auto& link : links_) {
      if (!link->has_ended()) link->send(message);
    }
  }

  void pause(bool paused) {
    for (auto& link : links_) link->pause(paused);
  }

  // --- ending

  void finish() { finished_ = true; }

  void farewell() {
    leaving_ = true;
    for (auto& link : links_) link->close_input();
    const Deadline deadline = Deadline::after(started_ ? kFarewell : kBriefly);
    // An ssh without an agent behind it has nothing to clean up.
    const auto all_ended = [&] {
      return std::all_of(links_.begin(), links_.end(), [&](const auto& link) {
        return link->has_ended() || lost_.contains(link.get()) || !ready_.contains(link.get());
      });
    };
    while (!all_ended() && !deadline.passed()) loop_->run_once(deadline);
  }

  int report() {
    const bool interrupted = signal_count_ > 0;
    if (!problems_.empty()) {
      output_->say(
          fmt::format("horon run: {} of {} host(s) failed:", problems_.size(), links_.size()));
      for (const std::string& problem : problems_) output_->say("  " + problem);
    }
    if (interrupted && !started_)
      output_->say("horon run: interrupted before any rank was started");
    if (interrupted && (!started_ || (problems_.empty() && is_interruption(failures_))))
      return static_cast<int>(ExitCode::kInterrupted);
    if (!failures_.empty() && problems_.empty()) {
      const RankFailure& culprit = choose_culprit(failures_);
      output_->say("horon run: " + describe_failure(culprit));
      auto lines = output_->last_lines(culprit.rank);
      if (is_misuse(culprit) && lines.size() == 1) lines.clear();  // it was printed just above
      if (!lines.empty()) output_->say("  its last lines on stderr:");
      for (const std::string& line : lines) output_->say("    " + line);
      return exit_status(culprit.status);
    }
    return problems_.empty() ? 0 : static_cast<int>(ExitCode::kLaunch);
  }

  const JobPlan& plan_;
  Log log_;
  Secret secret_ = Secret::random();
  std::unique_ptr<EventLoop> loop_;  // outlives all that use it
  std::vector<std::unique_ptr<HostLink>> links_;
  std::unique_ptr<SignalFd> signals_;
  std::unique_ptr<Output> output_;
  std::unique_ptr<StoreServer> server_;
  EventLoop::Timer start_timer_ = 0;
  std::set<const HostLink*> ready_;
  std::set<const HostLink*> lost_;
  std::vector<std::string> problems_;  // one for each lost host
  std::set<int> ended_;
  std::map<int, pid_t> pids_;
  std::vector<RankFailure> failures_;
  std::vector<int> sent_;  // signals to the ranks
  bool started_ = false;   // ranks were, or are being
  bool told_ = false;
  bool leaving_ = false;
  bool finished_ = false;
  int signal_count_ = 0;
};

}  // namespace

bool is_local_host(const std::string& name) {
  if (name.find('@') != std::string::npos) return false;
  std::string own(256, '\0');
  gethostname(own.data(), own.size() - 1);
  return name == "localhost" || name == own.c_str() || is_own_address(name);
}

std::string describe_plan(const JobPlan& plan) {
  std::string text = fmt::format("{} rank(s) of: {}\nin: {}\n", plan.placements.size(),
                                 fmt::join(plan.command, " "), plan.folder);
  for (size_t number = 0; number < plan.hosts.size(); ++number) {
    const Host& host = plan.hosts[number];
    std::vector<int> ranks;
    for (const RankPlacement& placement : plan.placements) {
      if (placement.cross_rank == static_cast<int>(number)) ranks.push_back(placement.rank);
    }
    const std::string how =
        is_local_host(host.name)
            ? "started here"
            : fmt::format("by: {}", fmt::join(ssh_command(plan.ssh, host.name), " "));
    text += fmt::format("{}: rank(s) {}, {}\n", host.name, fmt::join(ranks, ", "), how);
  }
  std::vector<std::string> names;
  for (const auto& [name, value] : process_environment()) {
    if (travels(name, plan.exports)) names.push_back(name);
  }
  for (const auto& [name, value] : plan.environment) names.push_back(name);
  return text + fmt::format("variables that travel to other hosts: {}\n", fmt::join(names, ", "));
}

int run_job(const JobPlan& plan) {
  keep_standard_descriptors();
  adopt_orphans();
  signal(SIGPIPE, SIG_IGN);
  Launcher launcher(plan);
  return launcher.run();
}

}  // namespace horon::launch
