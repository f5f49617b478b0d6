#include "horon/comm/work.h"

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace horon {

struct Work::State {
  std::mutex mutex;  // guards done, error and on_done
  bool done = false;
  std::exception_ptr error;
  std::condition_variable over;
  std::function<void(const Work&, Deadline)> on_wait;
  std::vector<std::function<void(const std::exception_ptr&)>> on_done;  // guarded, too
};

Work::Work() : state_(std::make_shared<State>()) {}

Work::Work(std::function<void(const Work& work, Deadline deadline)> on_wait) : Work() {
  state_->on_wait = std::move(on_wait);
}

void Work::wait() const {
  while (!wait(Deadline::never())) {
  }
}

bool Work::wait(Deadline deadline) const {
  if (state_->on_wait && !done()) state_->on_wait(*this, deadline);
  std::unique_lock lock(state_->mutex);
  if (!state_->over.wait_for(lock, deadline.left(), [&] { return state_->done; })) return false;
  if (state_->error) std::rethrow_exception(state_->error);
  return true;
}

bool Work::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

std::exception_ptr Work::error() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error;
}

void Work::expect() const {
  if (state_->on_wait && !done()) state_->on_wait(*this, Deadline::after(Milliseconds(0)));
}

void Work::on_done(std::function<void(const std::exception_ptr& error)> action) const {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) state_->on_done.push_back(std::exchange(action, nullptr));
  }
  if (action) return action(error());
  expect();
}

void Work::finish(std::exception_ptr error) const {
  std::vector<std::function<void(const std::exception_ptr&)>> actions;
  {
    const std::lock_guard lock(state_->mutex);
    state_->done = true;
    state_->error = error;
    actions.swap(state_->on_done);
  }
  state_->over.notify_all();
  for (const auto& action : actions) action(error);
}

}  // namespace horon
