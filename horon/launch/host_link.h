#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "horon/base/event_loop.h"
#include "horon/launch/agent_message.h"
#include "horon/launch/frame_pipe.h"
#include "horon/launch/job.h"

namespace horon::launch {

// The launcher's connection to one host's agent: a forked process on this host, ssh elsewhere. Only
// for the loop's thread.
class HostLink {
 public:
  struct Events {
    std::function<void(const FromAgent& message)> on_message;
    std::function<void()> on_end;  // the agent has ended; see why()
  };
  // Starts the agent; `local`: without ssh. `forked` are descriptors that a forked child must
  // close. Call connect() next.
  HostLink(const JobPlan& plan, const Host& host, bool local, const std::vector<int>& forked);
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  // Starts handling messages on `loop`.
  void connect(EventLoop& loop, Events events);
  void send(const ToAgent& message);
  void pause(bool paused);
  void close_input();  // the agent then ends its ranks and exits
  void kill_hard();

  const Host& host() const { return host_; }
  bool is_local() const { return local_; }
  bool has_ended() const { return ended_; }
  std::vector<int> descriptors() const;
  // After the end: the reason, in one line.
  std::string why();

 private:
  void start_here(const std::vector<int>& forked);
  void start_there();
  void on_words();

  const JobPlan& plan_;
  Host host_;
  bool local_;
  // The folder of a local agent; whichever of the two survives removes it.
  std::optional<TempFolder> folder_;
  pid_t pid_ = -1;
  Fd to_;
  Fd from_;
  Fd words_from_;  // ssh's stderr
  std::string words_;
  EventLoop* loop_ = nullptr;
  std::unique_ptr<FramePipe> pipe_;
  Events events_;
  bool heard_ = false;
  bool ended_ = false;
  std::string reason_;
};

}  // namespace horon::launch
