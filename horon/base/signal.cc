#include "horon/base/signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/thread.h"

namespace horon {

struct StopOnSignal::State {
  sigset_t previous{};
  int signals = -1;
  int wake = -1;
  std::stop_source source;
  std::atomic<bool> leaves = false;
  std::mutex mutex;
  std::map<int, std::function<void()>> actions;
  int next = 0;
  std::jthread reader;

  void take(int signal);
  void read_all();
};

void StopOnSignal::State::take(int signal) {
  if (signal == SIGUSR1) {
    const std::lock_guard lock(mutex);
    for (const auto& [number, action] : actions) action();
    return;
  }
  if (source.stop_requested()) _exit(128 + signal);
  if (leaves) {
    constexpr std::string_view kWord = "horon: interrupted before the first step\n";
    (void)!write(STDERR_FILENO, kWord.data(), kWord.size());
    _exit(static_cast<int>(ExitCode::kInterrupted));
  }
  source.request_stop();
}

void StopOnSignal::State::read_all() {
  std::array<pollfd, 2> watched = {{{signals, POLLIN, 0}, {wake, POLLIN, 0}}};
  while (poll(watched.data(), watched.size(), -1) >= 0 || errno == EINTR) {
    if ((watched[1].revents & POLLIN) != 0) return;
    signalfd_siginfo info{};
    if (read(signals, &info, sizeof(info)) != sizeof(info)) continue;
    take(static_cast<int>(info.ssi_signo));
  }
}

StopOnSignal::StopOnSignal(bool leaves) : state_(std::make_unique<State>()) {
  state_->leaves = leaves;
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  struct sigaction user {};
  sigaction(SIGUSR1, nullptr, &user);
  if (user.sa_handler == SIG_DFL) sigaddset(&wanted, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &wanted, &state_->previous);
  state_->signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  state_->wake = eventfd(0, EFD_CLOEXEC);
  if (state_->signals < 0 || state_->wake < 0) throw io_error("signalfd");
  state_->reader = start_thread(
      "hrn-signal", [state = state_.get()](const std::stop_token&) { state->read_all(); });
}

StopOnSignal::~StopOnSignal() {
  const uint64_t one = 1;
  if (write(state_->wake, &one, sizeof(one)) == sizeof(one)) state_->reader.join();
  close(state_->signals);
  close(state_->wake);
  pthread_sigmask(SIG_SETMASK, &state_->previous, nullptr);
}

std::stop_token StopOnSignal::token() const { return state_->source.get_token(); }

void StopOnSignal::leave_at_once(bool leaves) { state_->leaves = leaves; }

std::shared_ptr<void> StopOnSignal::on_user_signal(std::function<void()> action) {
  const std::lock_guard lock(state_->mutex);
  const int number = state_->next++;
  state_->actions[number] = std::move(action);
  return {nullptr, [state = state_.get(), number](void*) {
            const std::lock_guard again(state->mutex);
            state->actions.erase(number);
          }};
}

}  // namespace horon
