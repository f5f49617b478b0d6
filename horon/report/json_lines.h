#pragma once

#include <functional>
#include <optional>
#include <string>

#include "horon/report/event.h"

namespace horon::report {

// The sink for a run's log (log.jsonl): one JSON object per line, for every n-th step, each epoch
// with metrics, and each evaluation.
class JsonLines final : public Sink {
 public:
  // Appends to the file at `path`. `every`: steps between lines; 0: no steps. If the disk is full,
  // lines are lost and the run continues; `complain` is called once.
  JsonLines(std::string path, uint64_t every, std::function<void(const std::string&)> complain);
  void write(const Event& event) override;

 private:
  std::string path_;
  uint64_t every_;
  std::function<void(const std::string&)> complain_;
  bool complained_ = false;
};

// The line of an event, without a newline; empty if the log does not contain such events.
std::string to_line(const Event& event);
// The event of a line: kind, step, epoch and what to_line wrote. Nothing if the line is not an
// event, e.g. cut off by a full disk or a crash.
std::optional<Event> from_line(const std::string& line);

// Calls `action` for all events of a log, in order. After a resume a step may occur twice: the last
// one counts. UsageError: there is no file, or no event in it.
void read_log(const std::string& path, const std::function<void(const Event&)>& action);

}  // namespace horon::report
