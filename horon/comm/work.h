#pragma once

#include <exception>
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

  // For whoever runs the operation: over, with an error or without.
  void finish(std::exception_ptr error) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace horon
