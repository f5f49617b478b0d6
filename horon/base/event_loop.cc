#include "horon/base/event_loop.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include "horon/base/error.h"

namespace horon {

EventLoop::EventLoop()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !wake_) throw io_error("epoll_create1");
  watch(wake_.get(), EPOLLIN, [this](uint32_t) { run_posted(); });
}

EventLoop::~EventLoop() = default;

void EventLoop::watch(int fd, uint32_t events, Handler handler) {
  const uint64_t id = next_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw io_error("epoll_ctl");
  watches_[id] = {fd, std::make_shared<Handler>(std::move(handler))};
  ids_[fd] = id;
}

void EventLoop::change(int fd, uint32_t events) {
  const auto found = ids_.find(fd);
  if (found == ids_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = found->second;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::forget(int fd) {
  const auto found = ids_.find(fd);
  if (found == ids_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watches_.erase(found->second);
  ids_.erase(found);
}

EventLoop::Timer EventLoop::after(Clock::duration delay, std::function<void()> action) {
  const Timer id = next_id_++;
  timers_.emplace(Clock::now() + delay, std::pair{id, std::move(action)});
  return id;
}

void EventLoop::cancel(Timer timer) {
  std::erase_if(timers_, [&](const auto& entry) { return entry.second.first == timer; });
}

void EventLoop::post(std::function<void()> action) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(action));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t told = write(wake_.get(), &one, sizeof(one));
}

void EventLoop::stop() {
  stopped_ = true;
  post([] {});
}

void EventLoop::run_posted() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof(count));
  std::vector<std::function<void()>> actions;
  {
    const std::lock_guard lock(mutex_);
    actions.swap(posted_);
  }
  for (const auto& action : actions) action();
}

int EventLoop::wait_ms(Deadline deadline) const {
  auto left = deadline.left();
  if (!timers_.empty()) left = std::min(left, timers_.begin()->first - Clock::now());
  if (deadline.is_never() && timers_.empty()) return -1;
  const auto ms = std::chrono::ceil<Milliseconds>(std::max(left, Clock::duration(0))).count();
  return static_cast<int>(std::min<int64_t>(ms, INT_MAX));
}

void EventLoop::run_timers() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const auto action = std::move(timers_.begin()->second.second);
    timers_.erase(timers_.begin());
    action();
  }
}

bool EventLoop::run_once(Deadline deadline) {
  if (stopped_) return false;
  std::array<epoll_event, 128> ready{};
  const int count =
      epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), wait_ms(deadline));
  if (count < 0 && errno != EINTR) throw io_error("epoll_wait");
  for (int i = 0; i < count; ++i) {
    const auto found = watches_.find(ready[i].data.u64);
    if (found == watches_.end()) continue;  // forgotten by a handler just now
    const auto handler = found->second.handler;
    (*handler)(ready[i].events);
  }
  run_timers();
  return !stopped_;
}

void EventLoop::run() {
  while (run_once(Deadline::never())) {
  }
}

SignalFd::SignalFd(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (signal == SIGCHLD || now.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw io_error("signalfd");
}

SignalFd::~SignalFd() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int SignalFd::next() const {
  signalfd_siginfo info{};
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return 0;
  return static_cast<int>(info.ssi_signo);
}

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace horon
