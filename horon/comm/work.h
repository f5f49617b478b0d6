#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "horon/base/time.h"

namespace horon {

// The handle of an operation in flight. Copies share one state; any thread may wait.
class Work {
 public:
  Work();

  // Until it is over; throws the error that it ended with.
  void wait() const;
  // False if it is still going when the deadline passes. Throws the operation's error.
  bool wait(Deadline deadline) const;
  bool done() const;
  // Null while in flight and after success.
  std::exception_ptr error() const;
  // Somebody wants it to be over, and does not wait: it is not held back for others any more.
  void expect() const;
  // expect(), and a call when it is over: on the thread that ends it, which may hold locks (pass it
  // on, do not act), or at once on this one.
  void on_done(std::function<void(const std::exception_ptr& error)> action) const;

  // For whoever runs the operation: `on_wait` is called by a thread that is about to wait, until
  // the deadline at most; it may do some of the work itself.
  explicit Work(std::function<void(const Work& work, Deadline deadline)> on_wait);
  // Over, with an error or without.
  void finish(std::exception_ptr error) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace horon
