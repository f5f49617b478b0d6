#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "horon/base/event_loop.h"
#include "horon/net/wire.h"

namespace horon::launch {

// Frames over two descriptors (not the same one twice) on a loop; never blocks. The descriptors
// belong to the caller.
class FramePipe {
 public:
  struct Events {
    std::function<void(const std::string& frame)> on_frame;
    std::function<void(const std::string& why)> on_end;  // once; the pipe is then of no more use
    std::function<void()> on_drained = nullptr;          // what had to wait is written
  };
  // `magic`: what comes before these bytes is noise (at most 64 KiB of it); empty: none.
  FramePipe(EventLoop& loop, int in, int out, std::string_view magic, Events events);
  ~FramePipe();
  FramePipe(const FramePipe&) = delete;
  FramePipe& operator=(const FramePipe&) = delete;

  void send(std::string_view payload);
  void send_raw(std::string_view bytes);
  size_t unsent() const { return unsent_.size(); }
  void close_output();      // nothing can be sent any more; the descriptor may be closed
  void pause(bool paused);  // reading
  const std::string& noise() const { return noise_; }

 private:
  void on_readable();
  void flush();
  void end(const std::string& why);

  EventLoop& loop_;
  int in_;
  int out_;
  std::string magic_;
  Events events_;
  FrameReader frames_;
  std::string noise_;
  std::string unsent_;
  bool watching_out_ = false;
  bool ended_ = false;
};

}  // namespace horon::launch
