#include "horon/comm/p2p/peer_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"

namespace horon {
namespace {

constexpr int kTickMs = 100;

// Start time in clock ticks since boot: a pid that was used again has another one.
std::string start_time(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  const size_t after_name = all.rfind(')');
  if (after_name == std::string::npos) return "";
  std::istringstream fields(all.substr(after_name + 2));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return field;
}

// Pids mean something only inside one pid namespace.
std::string pid_namespace() {
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) != 0) return "?";
  return std::to_string(info.st_ino);
}

// "host pid-namespace pid start"
std::string identity(const std::string& host_id) {
  return fmt::format("{} {} {} {}", host_id, pid_namespace(), getpid(), start_time(getpid()));
}

int open_process(const std::string& text, const std::string& host_id) {
  const auto fields = split(text, ' ');
  if (fields.size() != 4 || fields[0] != host_id || fields[1] != pid_namespace()) return -1;
  const int pid = static_cast<int>(parse_integer(fields[2], "pid", 1, 1 << 30));
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd >= 0 && start_time(pid) == fields[3]) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

}  // namespace

PeerWatch::PeerWatch(const Options& options, Store& store, Deadline deadline,
                     std::function<void(int rank)> on_death, std::function<bool()> on_tick)
    : processes_(options.size, -1), on_death_(std::move(on_death)), on_tick_(std::move(on_tick)) {
  const auto key = [](int rank) { return fmt::format("process/{}", rank); };
  store.set(key(options.rank), identity(options.host_id), deadline);
  for (int rank = 0; rank < options.size; ++rank) {
    if (rank == options.rank) continue;
    processes_[rank] = open_process(store.get(key(rank), deadline), options.host_id);
  }
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw io_error("eventfd");
  idle_tick_ = options.idle_tick;
  thread_ = start_thread("hrn-peers", [this](const std::stop_token& stop) { run(stop); });
}

PeerWatch::~PeerWatch() {
  if (!process_.is_here()) {  // a forked child: the thread is not here to be joined
    thread_.detach();
    return;
  }
  thread_.request_stop();
  wake();
  thread_.join();
  for (int process : processes_) {
    if (process >= 0) close(process);
  }
  close(wake_);
}

void PeerWatch::wake() const {
  const uint64_t one = 1;
  while (write(wake_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void PeerWatch::run(const std::stop_token& stop) {
  std::vector<pollfd> watched;
  for (int process : processes_) watched.push_back({process, POLLIN, 0});
  watched.push_back({wake_, POLLIN, 0});
  bool ticking = false;
  while (!stop.stop_requested()) {
    const int patience = ticking ? kTickMs : static_cast<int>(idle_tick_.count());
    if (poll(watched.data(), watched.size(), patience) < 0 && errno != EINTR) return;
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      if ((watched[rank].revents & POLLIN) == 0) continue;
      watched[rank].fd = -1;
      watched[rank].revents = 0;
      on_death_(static_cast<int>(rank));
    }
    uint64_t drained = 0;
    while (read(wake_, &drained, sizeof(drained)) > 0) {
    }
    ticking = on_tick_();
  }
}

}  // namespace horon
