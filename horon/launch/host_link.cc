#include "horon/launch/host_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "horon/base/error.h"
#include "horon/launch/agent.h"
#include "horon/launch/process.h"
#include "horon/net/socket.h"

namespace horon::launch {
namespace {

constexpr size_t kMaxWords = 64U << 10;

struct Pipe {
  Fd read;
  Fd write;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw io_error("pipe");
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
};

}  // namespace

HostLink::HostLink(const JobPlan& plan, const Host& host, bool local,
                   const std::vector<int>& forked)
    : plan_(plan), host_(host), local_(local) {
  local_ ? start_here(forked) : start_there();
}

HostLink::~HostLink() {
  pipe_.reset();
  if (loop_ != nullptr && words_from_) loop_->forget(words_from_.get());
  kill_hard();
}

void HostLink::start_here(const std::vector<int>& forked) {
  folder_.emplace("horon-job");
  Pipe down;
  Pipe up;
  pid_ = fork();
  if (pid_ < 0) throw io_error("fork");
  if (pid_ == 0) {
    down.write.reset();
    up.read.reset();
    for (const int fd : forked) close(fd);
    _exit(run_agent({down.read.get(), up.write.get(), 0, false, folder_->path()}));
  }
  to_ = std::move(down.write);
  from_ = std::move(up.read);
}

void HostLink::start_there() {
  Pipe down;
  Pipe up;
  Pipe words;
  Spawn ssh;
  ssh.command = ssh_command(plan_.ssh, host_.name);
  ssh.environment = flatten(process_environment());
  ssh.in = down.read.get();
  ssh.out = up.write.get();
  ssh.err = words.write.get();
  pid_ = spawn(ssh);
  to_ = std::move(down.write);
  from_ = std::move(up.read);
  words_from_ = std::move(words.read);
}

std::vector<int> HostLink::descriptors() const {
  std::vector<int> all = {to_.get(), from_.get()};
  if (words_from_) all.push_back(words_from_.get());
  return all;
}

void HostLink::connect(EventLoop& loop, Events events) {
  loop_ = &loop;
  events_ = std::move(events);
  pipe_ =
      std::make_unique<FramePipe>(loop, from_.get(), to_.get(), kAgentMagic,
                                  FramePipe::Events{[this](const std::string& frame) {
                                                      heard_ = true;
                                                      events_.on_message(unpack_from_agent(frame));
                                                    },
                                                    [this](const std::string& why) {
                                                      ended_ = true;
                                                      reason_ = why;
                                                      events_.on_end();
                                                    },
                                                    nullptr});
  if (!words_from_) return;
  set_nonblocking(words_from_.get());
  loop.watch(words_from_.get(), EPOLLIN, [this](uint32_t) { on_words(); });
}

void HostLink::on_words() {
  char piece[4096];
  const ssize_t got = read(words_from_.get(), piece, sizeof(piece));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    loop_->forget(words_from_.get());
    words_from_.reset();
    return;
  }
  if (words_.size() < kMaxWords) words_.append(piece, static_cast<size_t>(got));
}

void HostLink::send(const ToAgent& message) { pipe_->send(pack(message)); }
void HostLink::pause(bool paused) { pipe_->pause(paused); }

void HostLink::close_input() {
  if (pipe_) pipe_->close_output();
  to_.reset();
}

void HostLink::kill_hard() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string HostLink::why() {
  // The stream has ended; the process does within a moment.
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  int status = 0;
  const bool over =
      process && wait_for(process.get(), POLLIN, Deadline::after(std::chrono::seconds(2)));
  if (over && waitpid(pid_, &status, 0) == pid_) pid_ = -1;
  while (words_from_) {
    if (!wait_for(words_from_.get(), POLLIN, Deadline::after(Milliseconds(100)))) break;
    on_words();
  }
  if (heard_ || local_) {
    return over ? fmt::format("its agent {}", describe_status(status))
                : fmt::format("its agent was lost ({})", reason_);
  }
  return explain_ssh_failure(plan_.ssh, exit_status(status), words_ + pipe_->noise());
}

}  // namespace horon::launch
