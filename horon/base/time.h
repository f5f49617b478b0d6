#pragma once

#include <chrono>
#include <string>
#include <string_view>

// Monotonic time only, so that clock changes have no effect.
namespace horon {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// The time at which waiting ends. A value type: pass one deadline down all calls that share it.
class Deadline {
 public:
  static Deadline after(Clock::duration duration) { return Deadline(Clock::now() + duration); }
  static Deadline never() { return Deadline(Clock::time_point::max()); }

  bool passed() const { return Clock::now() >= at_; }
  bool is_never() const { return at_ == Clock::time_point::max(); }
  Clock::time_point at() const { return at_; }
  // Time left, never negative, at most `cap`.
  Clock::duration left(Clock::duration cap = std::chrono::hours(24)) const;

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

// Measures time since construction or restart(), in seconds.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void restart() { start_ = Clock::now(); }

 private:
  Clock::time_point start_ = Clock::now();
};

// "250ms", "30s", "5m", "1.5h", "2d"; a bare number counts seconds. Throws UsageError naming the
// text.
Milliseconds parse_duration(std::string_view text);

// The shortest exact form that parse_duration accepts: "30s", "1500ms".
std::string format_duration(Milliseconds duration);

// "2026-11-15T06:30:00Z", for logs and records.
std::string utc_now();

}  // namespace horon
