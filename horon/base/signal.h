#pragma once

#include <functional>
#include <memory>
#include <stop_token>

namespace horon {

// While it lives, SIGTERM and SIGINT request a stop instead of ending the process: commit, then
// leave with ExitCode::kInterrupted. A second signal ends the process at once. Make it first thing
// in main, before other threads start: it blocks the signals and reads them on a thread of its own.
// SIGUSR1, if nobody else handles it, does no more than what on_user_signal() asks for.
class StopOnSignal {
 public:
  // `leaves`: as leave_at_once(true), from the first signal on.
  explicit StopOnSignal(bool leaves = false);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  std::stop_token token() const;

  // While true, also the first signal ends the process at once, with ExitCode::kInterrupted: for
  // the time in which there is nothing to commit, and others may be waited for. False at first.
  void leave_at_once(bool leaves);
  // Called on the thread that reads signals, until what is returned is gone; that must not outlive
  // this object.
  std::shared_ptr<void> on_user_signal(std::function<void()> action);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace horon
