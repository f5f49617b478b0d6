#pragma once

#include <signal.h>
#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "horon/base/fd.h"
#include "horon/base/time.h"

namespace horon {

// An epoll loop for the descriptors and timers of one thread. It sleeps until an event occurs and
// calls its handler. Handlers run on the thread that runs the loop and may watch, forget and cancel
// anything, including themselves. Only post() and stop() may be called from other threads. An
// exception from a handler leaves run().
class EventLoop {
 public:
  using Handler = std::function<void(uint32_t events)>;
  using Timer = uint64_t;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // `events` are EPOLLIN etc.; errors and hang-ups are always reported. The loop does not own `fd`.
  void watch(int fd, uint32_t events, Handler handler);
  // Replaces the events of a watched descriptor.
  void change(int fd, uint32_t events);
  // Call it before you close the descriptor. A descriptor that is not watched is ignored.
  void forget(int fd);

  // Calls `action` once after `delay`, unless cancelled. Unknown timers are ignored by cancel().
  Timer after(Clock::duration delay, std::function<void()> action);
  void cancel(Timer timer);

  // Thread-safe: runs `action` on the loop's thread.
  void post(std::function<void()> action);
  void stop();

  // Readable while run_once() has an event to handle; timers do not count.
  int fd() const { return epoll_.get(); }

  void run();  // until stop()
  // Handles ready events; waits for the first one until the deadline. False once stopped.
  bool run_once(Deadline deadline);

 private:
  struct Watch {
    int fd = -1;
    std::shared_ptr<Handler> handler;
  };
  void run_timers();
  void run_posted();
  int wait_ms(Deadline deadline) const;

  Fd epoll_;
  Fd wake_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Watch> watches_;
  std::map<int, uint64_t> ids_;
  std::multimap<Clock::time_point, std::pair<Timer, std::function<void()>>> timers_;
  std::mutex mutex_;  // guards posted_
  std::vector<std::function<void()>> posted_;
  std::atomic<bool> stopped_{false};
};

// A descriptor that receives signals. Blocks them in the calling thread (create it before other
// threads start) and restores the mask in the destructor. Signals that the process ignores (nohup)
// stay ignored.
class SignalFd {
 public:
  SignalFd(std::initializer_list<int> signals);
  ~SignalFd();
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;
  int fd() const { return fd_.get(); }
  // The next pending signal, 0 if there is none.
  int next() const;

 private:
  sigset_t before_{};
  Fd fd_;
};

// Sets O_NONBLOCK.
void set_nonblocking(int fd);

}  // namespace horon
