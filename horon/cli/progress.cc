#include "horon/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "horon/base/text.h"

namespace horon::cli {

Progress::Progress(std::string what, Unit unit)
    : what_(std::move(what)), unit_(unit), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (!shown_) return;
  draw(true);
  if (terminal_) std::fputs("\n", stderr);
}

void Progress::update(uint64_t done, uint64_t total) {
  done_ = done;
  total_ = total;
  const double now = watch_.seconds();
  if (now - drawn_ < (terminal_ ? 0.1 : 10.0)) return;
  if (!terminal_ && drawn_ < 0) {  // short work needs no lines
    drawn_ = now;
    return;
  }
  drawn_ = now;
  draw(false);
}

void Progress::draw(bool last) {
  shown_ = true;
  const double seconds = std::max(watch_.seconds(), 1e-3);
  const double rate = static_cast<double>(done_) / seconds;
  const double fraction =
      total_ == 0 ? 1.0 : std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  const std::string speed = unit_ == Unit::kBytes ? format_bytes(static_cast<uint64_t>(rate)) + "/s"
                                                  : fmt::format("{:.0f}/s", rate);
  const double left = rate > 0 ? static_cast<double>(total_ - std::min(done_, total_)) / rate : 0;
  const std::string when =
      last ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s left", left);
  if (!terminal_) {
    std::fputs(fmt::format("{}: {:.0f} %, {}, {}\n", what_, 100 * fraction, speed, when).c_str(),
               stderr);
    return;
  }
  constexpr size_t kWidth = 30;
  const auto full = static_cast<size_t>(fraction * kWidth);
  std::fputs(fmt::format("\r{} [{}{}] {:3.0f} %  {}  {}   ", what_, std::string(full, '#'),
                         std::string(kWidth - full, '.'), 100 * fraction, speed, when)
                 .c_str(),
             stderr);
  std::fflush(stderr);
}

}  // namespace horon::cli
