#include "horon/runtime/ledger.h"

#include <fmt/format.h>

namespace horon {
namespace {

uint64_t bytes_of(const Request& request) {
  uint64_t bytes = request.in.bytes();
  for (const Request& item : request.items) bytes += item.in.bytes();
  return bytes;
}

}  // namespace

void Ledger::watch(Communicator& comm) {
  comm.watch({[this](const Request& request) { begin(request); },
              [this](const Request& request, bool failed) { end(request, failed); }});
}

void Ledger::begin(const Request& request) {
  if (request.kind == OpKind::kJoin) return;
  {
    const std::lock_guard lock(mutex_);
    running_ = fmt::format("{} #{}",
                           request.name.empty() ? std::string(name_of(request.kind)) : request.name,
                           ++begun_);
    since_ = Clock::now();
  }
  if (options_.on_begin) options_.on_begin();
}

void Ledger::end(const Request& request, bool failed) {
  if (request.kind == OpKind::kJoin) return;
  TraceEvent event;
  event.kind = request.kind;
  event.lane = options_.lane;
  event.failed = failed;
  event.bytes = bytes_of(request);
  event.ended_ns = trace_now();
  {
    const std::lock_guard lock(mutex_);
    event.set_name(running_);
    event.submitted_ns = event.begun_ns = trace_time(since_);
    last_ = std::exchange(running_, {});
    last_at_ = Clock::now();
    if (!failed) {
      ++counters_.operations;
      ++counters_.collectives;
      counters_.bytes += event.bytes;
    }
  }
  if (options_.recorder) options_.recorder->record(event);
}

std::optional<std::pair<std::string, Clock::time_point>> Ledger::oldest() const {
  const std::lock_guard lock(mutex_);
  if (running_.empty()) return std::nullopt;
  return std::pair(running_, since_);
}

void Ledger::describe(RankState& state) const {
  const std::lock_guard lock(mutex_);
  if (!running_.empty()) state.pending.push_back(running_);
  state.note_finished(last_, last_at_);
}

RuntimeCounters Ledger::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace horon
