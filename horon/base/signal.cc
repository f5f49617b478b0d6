#include "horon/base/signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>

#include "horon/base/error.h"
#include "horon/base/thread.h"

namespace horon {

struct StopOnSignal::State {
  sigset_t previous{};
  int signals = -1;
  int wake = -1;
  std::stop_source source;
  std::jthread reader;
};

namespace {

// Reads signals until woken: the first asks to stop, the second ends the process.
void read_signals(int signals, int wake, std::stop_source& source) {
  std::array<pollfd, 2> watched = {{{signals, POLLIN, 0}, {wake, POLLIN, 0}}};
  while (poll(watched.data(), watched.size(), -1) >= 0 || errno == EINTR) {
    if ((watched[1].revents & POLLIN) != 0) return;
    signalfd_siginfo info{};
    if (read(signals, &info, sizeof(info)) != sizeof(info)) continue;
    if (source.stop_requested()) _exit(128 + static_cast<int>(info.ssi_signo));
    source.request_stop();
  }
}

}  // namespace

StopOnSignal::StopOnSignal() : state_(std::make_unique<State>()) {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  pthread_sigmask(SIG_BLOCK, &wanted, &state_->previous);
  state_->signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  state_->wake = eventfd(0, EFD_CLOEXEC);
  if (state_->signals < 0 || state_->wake < 0) throw io_error("signalfd");
  state_->reader = start_thread("hrn-signal", [state = state_.get()](const std::stop_token&) {
    read_signals(state->signals, state->wake, state->source);
  });
}

StopOnSignal::~StopOnSignal() {
  const uint64_t one = 1;
  if (write(state_->wake, &one, sizeof(one)) == sizeof(one)) state_->reader.join();
  close(state_->signals);
  close(state_->wake);
  pthread_sigmask(SIG_SETMASK, &state_->previous, nullptr);
}

std::stop_token StopOnSignal::token() const { return state_->source.get_token(); }

}  // namespace horon
