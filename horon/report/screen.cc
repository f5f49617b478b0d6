#include "horon/report/screen.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "horon/base/fd.h"
#include "horon/base/job_settings.h"

namespace horon::report {
namespace {

bool ends_on_terminal() {
  return isatty(STDOUT_FILENO) == 1 ||
         process_env("HORON_TERMINAL") == file_identity(STDOUT_FILENO);
}

}  // namespace

Screen::Screen(bool speaks) : speaks_(speaks), terminal_(speaks && ends_on_terminal()) {}

void Screen::say(const std::string& line) {
  if (!speaks_) return;
  if (const size_t width = std::exchange(shown_, 0)) fmt::print("\r{:{}}\r", "", width);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Screen::bar(const std::string& line) {
  if (!terminal_) return;
  fmt::print("\r{:<{}}", line, shown_);
  std::fflush(stdout);
  shown_ = std::max(shown_, line.size());
}

}  // namespace horon::report
