#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/time.h"

namespace horon::launch {

// Maximum number of buffered bytes of unfinished lines.
constexpr size_t kUnfinished = 32U << 20;

// Splits a stream into lines. Pure. A progress bar, which ends in a carriage return, is returned
// once a second. With `bars` it is not returned as a line, and a line contains only the text after
// the last carriage return.
class LineCutter {
 public:
  explicit LineCutter(bool bars = false) : bars_(bars) {}
  std::vector<std::string> feed(std::string_view bytes, Clock::time_point now);
  // The text after the last line end.
  std::optional<std::string> rest();
  // With `bars`: the text after the last carriage return, if no line end followed.
  std::optional<std::string> bar() const;
  size_t held() const { return buffer_.size(); }

 private:
  bool bars_;
  std::string buffer_;
  Clock::time_point shown_{};
};

// How output is shown.
struct OutputOptions {
  int size = 1;
  bool colour_out = false;  // colour of the prefix on stdout and stderr
  bool colour_err = false;
  bool timestamps = false;
  std::string folder;  // also writes folder/rank.N/stdout and stderr; empty: no
};

// Whether a progress bar on a rank's stdout may be redrawn in place: on a terminal, if output is
// not written to files.
bool shows_bars(const OutputOptions& options);

// Prints the ranks' output: complete lines, prefixed with "[rank] ", in order per rank. A line is
// held until it ends, so that a rank that stops inside a line delays no other; when the unfinished
// lines of all ranks together exceed kUnfinished, the longest is printed as it is and continues as
// a new line. A line "horon: ..." on stderr that another rank has already written is held until its
// rank writes more there or ends: see finish(). On a terminal the last line may be a rank's
// progress bar, which the next line replaces. A separate thread writes the lines, so that a blocked
// terminal does not block anything else.
class Output {
 public:
  // `on_drained` is called on the writing thread when is_full() becomes false.
  Output(const OutputOptions& options, std::function<void()> on_drained);
  ~Output();  // writes the remaining lines
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(int rank, bool is_error, std::string_view bytes);
  // The rank has ended: completes an unfinished line. `is_common`: the rank failed with an error
  // that every rank reports, so its last message need not be repeated.
  void finish(int rank, bool is_common);
  bool is_full() const;
  // The last lines of the rank's stderr.
  std::vector<std::string> last_lines(int rank) const;
  // Prints a line of the launcher on stderr, in order.
  void say(const std::string& line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace horon::launch
