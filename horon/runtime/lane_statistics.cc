#include "horon/runtime/lane_statistics.h"

#include <algorithm>

namespace horon {

void LaneStatistics::note_transfer(const std::vector<Submission>& items, uint64_t bytes,
                                   int64_t begun_ns, bool failed, const Communicator& comm) {
  ++counters_.collectives;
  counters_.bytes += bytes;
  note_waits(comm);
  trace(items, bytes, begun_ns, failed);
}

void LaneStatistics::note_death(const std::vector<Submission>& items, uint64_t bytes,
                                int64_t begun_ns) const {
  trace(items, bytes, begun_ns, true);
}

// The rank that was away longest since the last operation is the one that the others waited for.
// All ranks see the same numbers; rank 0 reports.
void LaneStatistics::note_waits(const Communicator& comm) {
  if (comm.size() < 2) return;
  const std::vector<uint64_t> away = comm.away_us();
  const std::vector<int>& members = comm.members();
  if (away_us_.size() == away.size()) {
    const auto since = [&](size_t i) { return away[i] - std::min(away[i], away_us_[i]); };
    size_t slowest = 0;
    for (size_t i = 1; i < away.size(); ++i) slowest = since(i) > since(slowest) ? i : slowest;
    const uint64_t mine = since(static_cast<size_t>(comm.rank()));
    counters_.waited_us.resize(static_cast<size_t>(comm.topology().size));
    counters_.waited_us[static_cast<size_t>(members[slowest])] += since(slowest) - mine;
  }
  if (comm.rank() == 0 && options_.warn) {
    const std::string line = stragglers_.add(away, members);
    if (!line.empty()) options_.warn(line);
  }
  away_us_ = away;
}

void LaneStatistics::trace(const std::vector<Submission>& items, uint64_t bytes, int64_t begun_ns,
                           bool failed) const {
  if (!options_.recorder) return;
  TraceEvent event;
  const TensorSpec& spec = items.front().spec;
  event.set_name(spec.name);
  event.kind = spec.kind;
  event.lane = options_.lane;
  event.failed = failed;
  event.tensors = static_cast<uint32_t>(items.size());
  event.bytes = bytes;
  event.submitted_ns = trace_time(items.front().submitted);
  event.begun_ns = begun_ns;
  event.ended_ns = trace_now();
  options_.recorder->record(event);
}

}  // namespace horon
