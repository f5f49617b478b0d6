#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/time.h"

namespace horon::launch {

// How many bytes of unfinished lines are held.
constexpr size_t kUnfinished = 32U << 20;

// Cuts a stream into lines. Pure. A progress bar that only ever returns the carriage is shown once
// a second. With `bars` it is none of the lines, and of a line what stands after the last return.
class LineCutter {
 public:
  explicit LineCutter(bool bars = false) : bars_(bars) {}
  std::vector<std::string> feed(std::string_view bytes, Clock::time_point now);
  // What came after the last line's end.
  std::optional<std::string> rest();
  // With `bars`: what stands after the last return of the carriage, if no line's end came after it.
  std::optional<std::string> bar() const;
  size_t held() const { return buffer_.size(); }

 private:
  bool bars_;
  std::string buffer_;
  Clock::time_point shown_{};
};

struct OutputOptions {
  int size = 1;
  bool colour_out = false;  // for the prefix on stdout and stderr
  bool colour_err = false;
  bool timestamps = false;
  std::string folder;  // also writes folder/rank.N/stdout and stderr; empty: no
};

// Whether a progress bar on a rank's stdout may be shown as one: on a terminal, and if no files get
// what it writes.
bool shows_bars(const OutputOptions& options);

// What the ranks print: every line whole, behind "[rank] ", in each rank's own order. A line is
// held until it ends, so that nobody waits for a rank that stops in the middle of one; when the
// unfinished lines of all ranks together exceed kUnfinished, the longest is printed as it is, and
// goes on as another line. A line "horon: ..." on stderr that another rank has written already is
// held, too, until its rank writes more there or ends: see finish(). On a terminal the last line
// may be a rank's progress bar, which the next line replaces. Lines are written by a thread of its
// own, so that a stuck terminal sticks nobody else.
class Output {
 public:
  // `on_drained` is called on the writing thread when is_full() is over.
  Output(const OutputOptions& options, std::function<void()> on_drained);
  ~Output();  // writes what is left
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(int rank, bool is_error, std::string_view bytes);
  // The rank has ended: an unfinished line becomes one. `is_common`: of a mistake that every rank
  // finds, so that what it said last needs no saying again.
  void finish(int rank, bool is_common);
  bool is_full() const;
  // Of the rank's stderr.
  std::vector<std::string> last_lines(int rank) const;
  // A line of our own on stderr, in its turn.
  void say(const std::string& line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace horon::launch
