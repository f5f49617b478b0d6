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

// Records what a runtime does: the last operations always (flight recorder), all of them on request
// (timeline).
namespace horon {

// One operation that has ended.
struct TraceEvent {
  char name[48] = {};  // first characters of the name
  OpKind kind = OpKind::kBarrier;
  uint8_t lane = 0;  // 0: bulk, 1: urgent, 2: unnamed, 3: on the world communicator
  bool failed = false;
  uint32_t tensors = 1;  // number of tensors it carried
  uint64_t bytes = 0;
  int64_t submitted_ns = 0;  // the earliest of its tensors; monotonic clock of this host
  int64_t begun_ns = 0;
  int64_t ended_ns = 0;

  void set_name(std::string_view text);
};

int64_t trace_now();  // nanoseconds of the monotonic clock
int64_t trace_time(Clock::time_point time);

// Keeps the last operations in a ring and, while a timeline is on, writes all of them to its file.
// Thread-safe; recording takes well under a microsecond.
class Recorder {
 public:
  explicit Recorder(int rank, size_t capacity = 1024);
  // Changes the rank number. Not while a timeline is on.
  void set_rank(int rank);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void record(const TraceEvent& event);
  // The recorded operations, oldest first.
  std::vector<TraceEvent> last() const;
  // The same as text, newest last.
  std::string describe() const;

  // Appends to `path`. `sync_ns`: this rank's clock at moments that all ranks share. IoError if the
  // file cannot be written, UsageError if a timeline is already on.
  void start_timeline(const std::string& path, const std::vector<int64_t>& sync_ns);
  // Writes the remaining events. Does nothing if no timeline is on.
  void stop_timeline();
  bool has_timeline() const { return timeline_on_; }

 private:
  struct File;
  void flush();

  int rank_;
  mutable std::mutex mutex_;  // guards everything below
  std::vector<TraceEvent> ring_;
  size_t next_ = 0;
  uint64_t recorded_ = 0;
  std::atomic<bool> timeline_on_{false};
  std::vector<TraceEvent> unwritten_;
  std::unique_ptr<File> file_;
};

// Merges the timelines of several ranks into one file for chrome://tracing and Perfetto: the times
// of each rank are shifted by the clock difference measured at the shared moments. UsageError that
// names the file and what is wrong with it. An incomplete last line comes from a rank that was
// killed: it is left out and reported in `notes`. Pure.
struct TimelineText {
  std::string path;  // for messages
  std::string text;
};
std::string merge_timelines(const std::vector<TimelineText>& timelines,
                            std::vector<std::string>* notes = nullptr);

}  // namespace horon
