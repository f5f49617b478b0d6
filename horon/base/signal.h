#pragma once

#include <functional>
#include <memory>
#include <stop_token>

namespace horon {

// While it exists, SIGTERM and SIGINT request a stop instead of ending the process: save the work,
// then exit with ExitCode::kInterrupted. A second signal ends the process at once. Create it first
// in main, before other threads start: it blocks the signals and reads them on its own thread.
// SIGUSR1, unless the process handles it otherwise, only runs the action of on_user_signal(). One
// per process.
class StopOnSignal {
 public:
  // `leaves`: starts with leave_at_once(true).
  explicit StopOnSignal(bool leaves = false);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  // Requested by the first signal. Thread-safe.
  std::stop_token token() const;

  // While true, the first signal also ends the process at once, with ExitCode::kInterrupted: for
  // phases in which there is nothing to save and other ranks may be waited for. Initially false.
  // Thread-safe.
  void leave_at_once(bool leaves);
  // Runs `action` on SIGUSR1, on the signal thread, until the returned handle is destroyed; the
  // handle must not outlive this object.
  std::shared_ptr<void> on_user_signal(std::function<void()> action);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace horon
