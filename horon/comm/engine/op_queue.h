#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "horon/base/thread.h"
#include "horon/comm/work.h"

namespace horon {

// Runs the operations of one communicator one at a time, in the order of the calls. A blocking call
// with an empty queue runs on the calling thread (a hand-over to another thread would cost 30-60
// us); the thread for the others starts with the first asynchronous operation. Thread-safe.
class OpQueue {
 public:
  // `on_error` is called on the thread whose operation throws; may be null.
  explicit OpQueue(std::string thread_name, std::function<void()> on_error = nullptr)
      : thread_name_(std::move(thread_name)), on_error_(std::move(on_error)) {}
  // Waits for the running operation, on whatever thread; queued ones end with an Error.
  ~OpQueue();
  OpQueue(const OpQueue&) = delete;
  OpQueue& operator=(const OpQueue&) = delete;

  // Accepts no more operations; queued ones end with an Error. False if one is still running at the
  // deadline.
  bool close(Deadline deadline);

  // Runs `operation` after those before it and waits; throws its error.
  void run(const std::function<void()>& operation);
  // Queues `operation` and returns at once.
  Work submit(std::function<void()> operation);

 private:
  struct Task {
    std::function<void()> operation;
    Work work;
  };
  Work enqueue(std::function<void()> operation);
  void drain(const std::stop_token& stop);

  std::string thread_name_;
  std::function<void()> on_error_;
  OwnProcess process_;
  std::mutex mutex_;  // guards all below
  // A pointer, because its destructor would wait for threads that a forked child does not have.
  std::unique_ptr<std::condition_variable_any> changed_ =
      std::make_unique<std::condition_variable_any>();
  bool busy_ = false;
  bool closed_ = false;
  std::deque<Task> tasks_;
  std::jthread thread_;
};

}  // namespace horon
