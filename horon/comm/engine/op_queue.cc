#include "horon/comm/engine/op_queue.h"

#include "horon/base/error.h"
#include "horon/base/thread.h"

namespace horon {
namespace {

std::exception_ptr closed_error() {
  return std::make_exception_ptr(Error("the communicator was closed before this operation began"));
}

}  // namespace

OpQueue::~OpQueue() {
  if (!process_.is_here()) {  // a forked child: whoever was at work is not here to end it
    if (thread_.joinable()) thread_.detach();
    static_cast<void>(changed_.release());
    return;
  }
  close(Deadline::never());
}

bool OpQueue::close(Deadline deadline) {
  if (!process_.is_here()) return true;
  std::unique_lock lock(mutex_);
  closed_ = true;
  for (const Task& task : tasks_) task.work.finish(closed_error());
  tasks_.clear();
  return changed_->wait_for(lock, deadline.left(), [&] { return !busy_; });
}

void OpQueue::run(const std::function<void()>& operation) {
  {
    std::unique_lock lock(mutex_);
    if (closed_) std::rethrow_exception(closed_error());
    if (busy_ || !tasks_.empty()) {
      lock.unlock();
      return enqueue(operation).wait();
    }
    busy_ = true;
  }
  // Under the lock: whoever closes us may destroy us as soon as it has it.
  const auto release = [this] {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    if (closed_ || !tasks_.empty()) changed_->notify_all();
  };
  try {
    operation();
  } catch (...) {
    if (on_error_) on_error_();
    release();
    throw;
  }
  release();
}

Work OpQueue::submit(std::function<void()> operation) { return enqueue(std::move(operation)); }

Work OpQueue::enqueue(std::function<void()> operation) {
  Work work;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) std::rethrow_exception(closed_error());
    tasks_.push_back({std::move(operation), work});
    if (!thread_.joinable()) {
      thread_ = start_thread(thread_name_, [this](const std::stop_token& stop) { drain(stop); });
    }
  }
  changed_->notify_all();
  return work;
}

void OpQueue::drain(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_->wait(lock, stop, [&] { return !busy_ && !tasks_.empty(); })) {
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      task.operation();
    } catch (...) {
      error = std::current_exception();
      if (on_error_) on_error_();
    }
    lock.lock();
    busy_ = false;
    task.work.finish(error);
    if (closed_) changed_->notify_all();
  }
}

}  // namespace horon
