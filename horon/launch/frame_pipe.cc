#include "horon/launch/frame_pipe.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "horon/base/error.h"
#include "horon/launch/agent_message.h"

namespace horon::launch {

constexpr size_t kMaxNoise = 64U << 10;

FramePipe::FramePipe(EventLoop& loop, int in, int out, std::string_view magic, Events events)
    : loop_(loop),
      in_(in),
      out_(out),
      magic_(magic),
      events_(std::move(events)),
      frames_(kAgentFrame) {
  set_nonblocking(in_);
  set_nonblocking(out_);
  loop_.watch(in_, EPOLLIN, [this](uint32_t) { on_readable(); });
}

FramePipe::~FramePipe() {
  loop_.forget(in_);
  close_output();
}

void FramePipe::pause(bool paused) {
  if (!ended_) loop_.change(in_, paused ? 0U : static_cast<uint32_t>(EPOLLIN));
}

void FramePipe::close_output() {
  if (out_ >= 0) loop_.forget(out_);
  out_ = -1;
  unsent_.clear();
}

void FramePipe::end(const std::string& why) {
  if (ended_) return;
  ended_ = true;
  loop_.forget(in_);
  close_output();
  events_.on_end(why);
}

void FramePipe::on_readable() {
  char piece[65536];
  const ssize_t got = read(in_, piece, sizeof(piece));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return end(got == 0 ? "closed" : std::strerror(errno));
  std::string_view bytes(piece, static_cast<size_t>(got));
  std::string rest;
  if (!magic_.empty()) {
    noise_.append(bytes);
    const size_t at = noise_.find(magic_);
    if (at == std::string::npos) {
      if (noise_.size() > kMaxNoise) end("it is not a horon agent (unexpected output)");
      return;
    }
    rest = noise_.substr(at + magic_.size());
    bytes = rest;
    noise_.resize(at);
    magic_.clear();
  }
  try {
    frames_.feed(bytes);
    while (!ended_) {
      const auto frame = frames_.next();
      if (!frame) return;
      events_.on_frame(*frame);
    }
  } catch (const Error& error) {
    end(error.what());
  }
}

void FramePipe::send(std::string_view payload) { send_raw(make_frame(payload)); }

void FramePipe::send_raw(std::string_view bytes) {
  if (out_ < 0) return;
  unsent_.append(bytes);
  flush();
}

void FramePipe::flush() {
  size_t done = 0;
  while (done < unsent_.size()) {
    const ssize_t put = write(out_, unsent_.data() + done, unsent_.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) break;
    if (put < 0) return end(std::strerror(errno));
    done += static_cast<size_t>(put);
  }
  unsent_.erase(0, done);
  const bool blocked = !unsent_.empty();
  if (blocked != watching_out_) {
    watching_out_ = blocked;
    if (blocked) {
      loop_.watch(out_, EPOLLOUT, [this](uint32_t) { flush(); });
    } else {
      loop_.forget(out_);
    }
  }
  if (!blocked && events_.on_drained) events_.on_drained();
}

}  // namespace horon::launch
