#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "horon/base/time.h"

namespace horon {

// The handle of an asynchronous operation. Copies share one state. Thread-safe; any thread may
// wait.
//
//   const Work work = comm.start(Request::all_reduce(view_of(values)));
//   work.wait();  // throws the operation's error
class Work {
 public:
  Work();

  // Waits until the operation has ended; throws its error.
  void wait() const;
  // False if it is still running at the deadline. Throws the operation's error.
  bool wait(Deadline deadline) const;
  bool done() const;
  // Null while in flight and after success.
  std::exception_ptr error() const;
  // Declares interest in completion without waiting: the operation is no longer held back for
  // others.
  void expect() const;
  // expect(), and calls `action` when the operation has ended: at once on this thread, or later on
  // the thread that ends it, which may hold locks (only hand the event over).
  void on_done(std::function<void(const std::exception_ptr& error)> action) const;

  // For the code that runs the operation: `on_wait` is called by a thread that is about to wait,
  // until the deadline at most; it may do some of the work itself.
  explicit Work(std::function<void(const Work& work, Deadline deadline)> on_wait);
  // Marks the operation as ended, with or without an error.
  void finish(std::exception_ptr error) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace horon
