#pragma once

#include <memory>
#include <stop_token>

namespace horon {

// While it lives, SIGTERM and SIGINT request a stop instead of ending the process: commit, then
// leave with ExitCode::kInterrupted. A second signal ends the process at once. Make it first thing
// in main, before other threads start: it blocks the two signals and reads them on a thread of its
// own.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  std::stop_token token() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace horon
