#include "horon/launch/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/queue.h"
#include "horon/base/thread.h"

namespace horon::launch {
namespace {

constexpr size_t kFull = 4U << 20;
constexpr size_t kLongLine = 64U << 10;
constexpr size_t kLastLines = 10;
constexpr size_t kManyErrors = 100;
constexpr std::string_view kErrorMark = "horon: ";
constexpr size_t kColourBytes = 9;  // of a prefix

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
  for (size_t end = bytes.find('\n'); end != bytes.npos; end = bytes.find('\n')) {
    buffer_.append(bytes.substr(0, end));
    if (buffer_.ends_with('\r')) buffer_.pop_back();
    if (bars_) buffer_.erase(0, buffer_.rfind('\r') + 1);  // npos + 1 is 0
    lines.push_back(std::exchange(buffer_, {}));
    bytes.remove_prefix(end + 1);
  }
  if (!lines.empty()) shown_ = now;
  // A final carriage return may be half of a line's end; the text before it was examined earlier.
  const size_t from = buffer_.empty() ? 0 : buffer_.size() - 1;
  buffer_.append(bytes);
  if (buffer_.empty()) return lines;
  const size_t at = std::string_view(buffer_).substr(from, buffer_.size() - 1 - from).rfind('\r');
  const size_t carriage = at == bytes.npos ? 0 : from + at;
  if (carriage == 0) return lines;
  if (bars_) {
    buffer_.erase(0, carriage);  // a carriage return marks a bar
    return lines;
  }
  const size_t before = buffer_.rfind('\r', carriage - 1);
  const size_t start = before == std::string::npos ? 0 : before + 1;
  if (now - shown_ >= std::chrono::seconds(1)) {
    lines.push_back(buffer_.substr(start, carriage - start));
    shown_ = now;
  }
  buffer_.erase(0, carriage + 1);
  return lines;
}

std::optional<std::string> LineCutter::rest() {
  if (auto last = bar()) {
    buffer_.clear();
    return last;
  }
  if (buffer_.empty()) return std::nullopt;
  return std::exchange(buffer_, {});
}

std::optional<std::string> LineCutter::bar() const {
  if (!bars_ || !buffer_.starts_with('\r')) return std::nullopt;
  return buffer_.substr(1, buffer_.ends_with('\r') ? buffer_.size() - 2 : buffer_.npos);
}

bool shows_bars(const OutputOptions& options) {
  return isatty(STDOUT_FILENO) == 1 && options.folder.empty();
}

struct Output::Impl {
  struct Stream {
    explicit Stream(bool bars) : cutter(bars) {}
    LineCutter cutter;
    Fd file;
  };
  OutputOptions options;
  std::function<void()> on_drained;
  bool bars = false;
  size_t bar_width = 0;  // of the bar that is there
  std::map<std::pair<int, bool>, Stream> streams;
  size_t unfinished = 0;  // bytes in all of their cutters
  std::map<int, std::deque<std::string>> last;
  std::set<std::string> errors;      // lines that Horon's own program ends with, shown
  std::map<int, std::string> again;  // such a line of another rank: held, it may be its last
  BlockingQueue<Piece> queue;
  std::atomic<size_t> queued{0};
  std::jthread writer;

  Stream& stream(int rank, bool is_error) {
    const auto [at, fresh] = streams.try_emplace({rank, is_error}, bars && !is_error);
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

  // Calls come from one thread, so that what is put in several pieces stays together.
  void print(int rank, bool is_error, std::vector<std::string> lines) {
    const int fd = is_error ? STDERR_FILENO : STDOUT_FILENO;
    if (!lines.empty()) clear_bar();
    std::string text;
    for (std::string& line : lines) {
      if (is_error) keep(last[rank], line);
      if (is_error) text += said_again(rank);
      if (is_error && is_repeated(line)) {
        again[rank] = std::move(line);
        continue;
      }
      text += prefix(rank, is_error);
      if (line.size() > kLongLine) {  // not copied
        put(fd, std::exchange(text, {}));
        put(fd, std::move(line));
      } else {
        text += line;
      }
      text += "\n";
    }
    put(fd, std::move(text));
  }

  // Whether another rank printed this line, perhaps as its last.
  bool is_repeated(const std::string& line) {
    if (!line.starts_with(kErrorMark) || line.size() > kLongLine) return false;
    if (errors.contains(line)) return true;
    if (errors.size() < kManyErrors) errors.insert(line);
    return false;
  }

  // The line that was held, which was not the rank's last.
  std::string said_again(int rank) {
    const auto held = again.extract(rank);
    return held.empty() ? "" : prefix(rank, true) + held.mapped() + "\n";
  }

  void clear_bar() {
    if (const size_t width = std::exchange(bar_width, 0))
      put(STDOUT_FILENO, fmt::format("\r{:{}}\r", "", width));
  }

  // Never wider than the terminal: a carriage returns to the begin of its last row only.
  void show_bar(int rank, const std::string& bar) {
    const std::string before = prefix(rank, false);
    const size_t taken = before.size() - (options.colour_out ? kColourBytes : 0);
    winsize window{};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &window);
    const size_t columns = window.ws_col > taken ? window.ws_col - taken - 1 : bar.size();
    const std::string shown = bar.substr(0, columns);
    const size_t width = taken + shown.size();
    const size_t more = bar_width > width ? bar_width - width : 0;
    put(STDOUT_FILENO, fmt::format("\r{}{}{:{}}", before, shown, "", more));
    bar_width = std::max(bar_width, width);
  }

  static void keep(std::deque<std::string>& last_lines, const std::string& line) {
    last_lines.push_back(line.substr(0, 500));
    if (last_lines.size() > kLastLines) last_lines.pop_front();
  }

  void feed(int rank, bool is_error, std::string_view bytes) {
    LineCutter& cutter = stream(rank, is_error).cutter;
    unfinished -= cutter.held();
    print(rank, is_error, cutter.feed(bytes, Clock::now()));
    unfinished += cutter.held();
    if (const auto bar = cutter.bar()) show_bar(rank, *bar);
    while (unfinished > kUnfinished) {
      const auto longest =
          std::max_element(streams.begin(), streams.end(), [](const auto& a, const auto& b) {
            return a.second.cutter.held() < b.second.cutter.held();
          });
      print_rest(longest->first.first, longest->first.second);
    }
  }

  void print_rest(int rank, bool is_error) {
    LineCutter& cutter = stream(rank, is_error).cutter;
    unfinished -= cutter.held();
    if (auto rest = cutter.rest()) print(rank, is_error, {std::move(*rest)});
  }

  void put(int fd, std::string text) {
    if (text.empty()) return;
    queued += text.size();
    queue.push({fd, std::move(text)});
  }

  void run() {
    while (const auto piece = queue.pop()) {
      write_all(piece->fd, piece->bytes);  // no reader is left; the ranks continue
      const size_t before = queued.fetch_sub(piece->bytes.size());
      if (before > kFull / 2 && before - piece->bytes.size() <= kFull / 2) on_drained();
    }
  }
};

Output::Output(const OutputOptions& options, std::function<void()> on_drained)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->bars = shows_bars(options);
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

Output::~Output() {
  while (!impl_->again.empty())
    impl_->put(STDERR_FILENO, impl_->said_again(impl_->again.begin()->first));
  impl_->queue.close();
}

void Output::write(int rank, bool is_error, std::string_view bytes) {
  Impl::Stream& stream = impl_->stream(rank, is_error);
  if (stream.file && !write_all(stream.file.get(), bytes)) {
    say(fmt::format("horon run: {} of rank {} cannot be written to {} any more: {}",
                    is_error ? "stderr" : "stdout", rank, impl_->options.folder,
                    std::strerror(errno)));
    stream.file.reset();  // the terminal still gets it
  }
  impl_->feed(rank, is_error, bytes);
}

void Output::finish(int rank, bool is_common) {
  for (const bool is_error : {false, true}) impl_->print_rest(rank, is_error);
  const std::string line = impl_->said_again(rank);
  if (!is_common) impl_->put(STDERR_FILENO, line);
}

bool Output::is_full() const { return impl_->queued > kFull; }

std::vector<std::string> Output::last_lines(int rank) const {
  const auto found = impl_->last.find(rank);
  if (found == impl_->last.end()) return {};
  return {found->second.begin(), found->second.end()};
}

void Output::say(const std::string& line) {
  impl_->clear_bar();
  impl_->put(STDERR_FILENO, line + "\n");
}

}  // namespace horon::launch
