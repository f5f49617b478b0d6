#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "horon/base/event_loop.h"
#include "horon/net/wire.h"

namespace horon::launch {

// Sends and receives frames over two different descriptors on an event loop; never blocks. The
// caller owns the descriptors. Only for the loop's thread.
class FramePipe {
 public:
  struct Events {
    std::function<void(const std::string& frame)> on_frame;
    std::function<void(const std::string& why)> on_end;  // called once; the pipe is then unusable
    std::function<void()> on_drained = nullptr;          // all pending bytes are written
  };
  // `magic`: everything before these bytes is ignored (at most 64 KiB); empty: none.
  FramePipe(EventLoop& loop, int in, int out, std::string_view magic, Events events);
  ~FramePipe();
  FramePipe(const FramePipe&) = delete;
  FramePipe& operator=(const FramePipe&) = delete;

  // Queues a frame (send), or bytes without framing (send_raw).
  void send(std::string_view payload);
  void send_raw(std::string_view bytes);
  size_t unsent() const { return unsent_.size(); }
  void close_output();      // ends sending; the descriptor may then be closed
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
