#include "horon/comm/op_queue.h"

#include "horon/base/error.h"
#include "horon/base/thread.h"

namespace horon {

OpQueue::~OpQueue() {
  drop_tasks();
  std::jthread thread;
  {
    const std::lock_guard lock(mutex_);
    thread = std::move(thread_);
  }
  thread.request_stop();
  changed_.notify_all();
}

void OpQueue::drop_tasks() {
  std::deque<Task> orphans;
  {
    const std::lock_guard lock(mutex_);
    orphans.swap(tasks_);
  }
  for (const Task& task : orphans) {
    task.work.finish(
        std::make_exception_ptr(Error("the communicator was closed before this operation began")));
  }
}

bool OpQueue::close(Deadline deadline) {
  drop_tasks();
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.at(), [&] { return !busy_; });
}

void OpQueue::run(const std::function<void()>& operation) {
  {
    std::unique_lock lock(mutex_);
    if (busy_ || !tasks_.empty()) {
      lock.unlock();
      return enqueue(operation).wait();
    }
    busy_ = true;
  }
  const auto release = [this] {
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
    }
    changed_.notify_all();
  };
  try {
    operation();
  } catch (...) {
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
    tasks_.push_back({std::move(operation), work});
    if (!thread_.joinable()) {
      thread_ = start_thread(thread_name_, [this](const std::stop_token& stop) { drain(stop); });
    }
  }
  changed_.notify_all();
  return work;
}

void OpQueue::drain(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !busy_ && !tasks_.empty(); })) {
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      task.operation();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    task.work.finish(error);
    changed_.notify_all();
  }
}

}  // namespace horon
