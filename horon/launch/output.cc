#include "horon/launch/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/queue.h"
#include "horon/base/thread.h"

namespace horon::launch {
namespace {

constexpr size_t kLongLine = 1U << 20;
constexpr size_t kFull = 4U << 20;
constexpr size_t kLastLines = 10;

// False if they could not be written.
bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) {  // a terminal that somebody else made so
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, 1000);
      continue;
    }
    if (put < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

struct Piece {
  int fd;
  std::string bytes;
};

}  // namespace

std::vector<std::string> LineCutter::feed(std::string_view bytes, Clock::time_point now) {
  std::vector<std::string> lines;
  buffer_.append(bytes);
  size_t start = 0;
  for (size_t end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n', start)) {
    const bool crlf = end > start && buffer_[end - 1] == '\r';
    lines.push_back(buffer_.substr(start, end - start - (crlf ? 1 : 0)));
    start = end + 1;
  }
  buffer_.erase(0, start);
  if (!lines.empty()) shown_ = now;
  const size_t carriage = buffer_.rfind('\r', buffer_.size() < 2 ? 0 : buffer_.size() - 2);
  if (carriage != std::string::npos && carriage > 0) {
    const size_t before = buffer_.rfind('\r', carriage - 1);
    const size_t from = before == std::string::npos ? 0 : before + 1;
    if (now - shown_ >= std::chrono::seconds(1)) {
      lines.push_back(buffer_.substr(from, carriage - from));
      shown_ = now;
    }
    buffer_.erase(0, carriage + 1);
  }
  if (buffer_.size() > kLongLine) lines.push_back(std::exchange(buffer_, {}));
  return lines;
}

std::optional<std::string> LineCutter::rest() {
  if (buffer_.empty()) return std::nullopt;
  return std::exchange(buffer_, {});
}

struct Output::Impl {
  struct Stream {
    LineCutter cutter;
    Fd file;
  };
  OutputOptions options;
  std::function<void()> on_drained;
  std::map<std::pair<int, bool>, Stream> streams;
  std::map<int, std::deque<std::string>> last;
  BlockingQueue<Piece> queue;
  std::atomic<size_t> queued{0};
  std::jthread writer;

  Stream& stream(int rank, bool is_error) {
    const auto [at, fresh] = streams.try_emplace({rank, is_error});
    if (fresh && !options.folder.empty()) at->second.file = open_file(rank, is_error);
    return at->second;
  }

  // "rank.07" among 10 to 100 ranks, so that they sort.
  Fd open_file(int rank, bool is_error) const {
    const size_t width = std::to_string(options.size - 1).size();
    const std::string folder = fmt::format("{}/rank.{:0{}}", options.folder, rank, width);
    std::filesystem::create_directories(folder);
    const std::string path = folder + (is_error ? "/stderr" : "/stdout");
    Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file) throw io_error("create " + path);
    return file;
  }

  std::string prefix(int rank, bool is_error) const {
    const std::string time = options.timestamps ? utc_now() + " " : "";
    if (!(is_error ? options.colour_err : options.colour_out))
      return fmt::format("{}[{}] ", time, rank);
    return fmt::format("{}\x1b[{}m[{}]\x1b[0m ", time, 31 + (rank + 1) % 6, rank);
  }

  void print(int rank, bool is_error, const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
      text += prefix(rank, is_error) + line + "\n";
      if (!is_error) continue;
      auto& kept = last[rank];
      kept.push_back(line.substr(0, 500));
      if (kept.size() > kLastLines) kept.pop_front();
    }
    put(is_error ? STDERR_FILENO : STDOUT_FILENO, std::move(text));
  }

  void put(int fd, std::string text) {
    if (text.empty()) return;
    queued += text.size();
    queue.push({fd, std::move(text)});
  }

  void run() {
    while (const auto piece = queue.pop()) {
      write_all(piece->fd, piece->bytes);  // nobody reads any more: the ranks go on all the same
      const size_t before = queued.fetch_sub(piece->bytes.size());
      if (before > kFull / 2 && before - piece->bytes.size() <= kFull / 2) on_drained();
    }
  }
};

Output::Output(const OutputOptions& options, std::function<void()> on_drained)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->on_drained = std::move(on_drained);
  if (!options.folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.folder, error);
    if (error)
      throw IoError(fmt::format("--output-filename {}: {}", options.folder, error.message()));
  }
  impl_->writer =
      start_thread("horon-output", [impl = impl_.get()](const std::stop_token&) { impl->run(); });
}

Output::~Output() { impl_->queue.close(); }

void Output::write(int rank, bool is_error, std::string_view bytes) {
  Impl::Stream& stream = impl_->stream(rank, is_error);
  if (stream.file && !write_all(stream.file.get(), bytes)) {
    say(fmt::format("horon run: {} of rank {} cannot be written to {} any more: {}",
                    is_error ? "stderr" : "stdout", rank, impl_->options.folder,
                    std::strerror(errno)));
    stream.file.reset();  // the terminal still gets it
  }
  impl_->print(rank, is_error, stream.cutter.feed(bytes, Clock::now()));
}

void Output::finish(int rank) {
  for (const bool is_error : {false, true}) {
    if (const auto rest = impl_->stream(rank, is_error).cutter.rest())
      impl_->print(rank, is_error, {*rest});
  }
}

bool Output::is_full() const { return impl_->queued > kFull; }

std::vector<std::string> Output::last_lines(int rank) const {
  const auto found = impl_->last.find(rank);
  if (found == impl_->last.end()) return {};
  return {found->second.begin(), found->second.end()};
}

void Output::say(const std::string& line) { impl_->put(STDERR_FILENO, line + "\n"); }

}  // namespace horon::launch
