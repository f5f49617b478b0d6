#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "horon/base/time.h"
#include "horon/comm/types.h"

// What a runtime did: the last operations always (flight recorder), all of them on request
// (timeline).
namespace horon {

struct TraceEvent {
  char name[48] = {};  // beginning of it
  OpKind kind = OpKind::kBarrier;
  uint8_t lane = 0;  // 0: bulk, 1: urgent, 2: without a name, 3: on the world itself
  bool failed = false;
  uint32_t tensors = 1;  // that it carried
  uint64_t bytes = 0;
  int64_t submitted_ns = 0;  // the first of them; monotonic clock of this host
  int64_t begun_ns = 0;
  int64_t ended_ns = 0;

  void set_name(std::string_view text);
};

int64_t trace_now();  // nanoseconds of the monotonic clock
int64_t trace_time(Clock::time_point time);

// Keeps the last operations in a ring and, while a timeline is on, hands all of them to its file.
// Any thread; recording takes well under a microsecond.
class Recorder {
 public:
  explicit Recorder(int rank, size_t capacity = 1024);
  // The ranks have other numbers from now on. Not while a timeline is written.
  void set_rank(int rank);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void record(const TraceEvent& event);
  // Oldest first.
  std::vector<TraceEvent> last() const;
  // The same for people, newest last.
  std::string describe() const;

  // Appends to `path`; `sync_ns` are this rank's times of moments that all ranks share. IoError if
  // the file cannot be written, UsageError if a timeline is on already.
  void start_timeline(const std::string& path, const std::vector<int64_t>& sync_ns);
  // Writes what is left. Nothing if none is on.
  void stop_timeline();
  bool has_timeline() const { return timeline_on_; }

 private:
  struct File;
  void flush();

  int rank_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<TraceEvent> ring_;
  size_t next_ = 0;
  uint64_t recorded_ = 0;
  std::atomic<bool> timeline_on_{false};
  std::vector<TraceEvent> unwritten_;
  std::unique_ptr<File> file_;
};

// The timelines of several ranks as one file for chrome://tracing and Perfetto: times of rank r are
// moved by what the shared moments say about its clock. Pure; UsageError naming what is wrong with
// which file. A last line without an end is that of a rank that was killed: left out, and told in
// `notes`.
struct TimelineText {
  std::string path;  // for messages
  std::string text;
};
std::string merge_timelines(const std::vector<TimelineText>& timelines,
                            std::vector<std::string>* notes = nullptr);

}  // namespace horon
