#include "horon/runtime/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "horon/base/error.h"

namespace horon {
namespace {

constexpr size_t kBatch = 4096;  // events between writes

std::string line_of(const TraceEvent& event, int rank) {
  nlohmann::json line = {
      {"name", std::string(event.name)},
      {"cat", std::string(name_of(event.kind))},
      {"ph", "X"},
      {"ts", static_cast<double>(event.begun_ns) * 1e-3},
      {"dur", static_cast<double>(event.ended_ns - event.begun_ns) * 1e-3},
      {"pid", rank},
      {"tid", event.lane},
      {"args",
       {{"bytes", event.bytes},
        {"tensors", event.tensors},
        {"queued_us", static_cast<double>(event.begun_ns - event.submitted_ns) * 1e-3}}}};
  if (event.failed) line["args"]["failed"] = true;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

struct Recorder::File {
  std::string path;
  std::ofstream out;
};

int64_t trace_time(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
int64_t trace_now() { return trace_time(Clock::now()); }

void TraceEvent::set_name(std::string_view text) {
  std::fill(std::begin(name), std::end(name), '\0');
  std::copy_n(text.data(), std::min(text.size(), sizeof(name) - 1), name);
}

Recorder::Recorder(int rank, size_t capacity) : rank_(rank), ring_(capacity) {}

void Recorder::set_rank(int rank) {
  const std::lock_guard lock(mutex_);
  rank_ = rank;
}

Recorder::~Recorder() {
  try {
    stop_timeline();
  } catch (const std::exception&) {  // the disk is full: the job's result does not depend on it
  }
}

void Recorder::record(const TraceEvent& event) {
  const std::lock_guard lock(mutex_);
  ring_[next_] = event;
  next_ = (next_ + 1) % ring_.size();
  ++recorded_;
  if (!file_) return;
  unwritten_.push_back(event);
  if (unwritten_.size() >= kBatch) flush();
}

std::vector<TraceEvent> Recorder::last() const {
  const std::lock_guard lock(mutex_);
  std::vector<TraceEvent> events;
  const size_t count = std::min<uint64_t>(recorded_, ring_.size());
  for (size_t i = 0; i < count; ++i)
    events.push_back(ring_[(next_ + ring_.size() - count + i) % ring_.size()]);
  return events;
}

std::string Recorder::describe() const {
  const std::vector<TraceEvent> events = last();
  std::string text = fmt::format("the last {} operations of rank {} (times in ms before now):\n",
                                 events.size(), rank_);
  const int64_t now = trace_now();
  const auto ago = [&](int64_t ns) { return static_cast<double>(now - ns) * 1e-6; };
  for (const TraceEvent& event : events) {
    text += fmt::format("  {:>12.3f} .. {:>12.3f}  {:<14} {:>12} bytes, {} tensor(s){}  {}\n",
                        ago(event.begun_ns), ago(event.ended_ns), name_of(event.kind), event.bytes,
                        event.tensors, event.failed ? ", FAILED" : "", event.name);
  }
  return text;
}

void Recorder::start_timeline(const std::string& path, const std::vector<int64_t>& sync_ns) {
  const std::lock_guard lock(mutex_);
  require(file_ == nullptr, "a timeline is being written already");
  auto file = std::make_unique<File>();
  file->path = path;
  file->out.open(path, std::ios::trunc);
  if (!file->out) throw io_error("write " + path);
  file->out << nlohmann::json({{"horon_timeline", 1}, {"rank", rank_}, {"sync_ns", sync_ns}}).dump()
            << "\n";
  file_ = std::move(file);
  timeline_on_ = true;
}

void Recorder::stop_timeline() {
  const std::lock_guard lock(mutex_);
  if (!file_) return;
  timeline_on_ = false;
  flush();
  const auto file = std::move(file_);
  file->out.close();
  if (!file->out) throw io_error("write " + file->path);
}

void Recorder::flush() {
  for (const TraceEvent& event : std::exchange(unwritten_, {})) file_->out << line_of(event, rank_);
  file_->out.flush();
}

namespace {

struct Parsed {
  std::string path;
  int rank = 0;
  std::vector<int64_t> sync;
  std::vector<nlohmann::json> events;
};

Parsed parse(const TimelineText& timeline, std::vector<std::string>* notes) {
  Parsed parsed;
  parsed.path = timeline.path;
  std::istringstream lines(timeline.text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
    const auto wrong = [&](const char* what) {
      throw UsageError(fmt::format("{}:{}: {}", timeline.path, number, what));
    };
    const bool is_cut = lines.eof() && number > 1;  // the text ends in the middle of the line
    if (value.is_discarded() && is_cut) {
      if (notes != nullptr)
        notes->push_back(fmt::format("{}:{}: cut off, left out", timeline.path, number));
      break;
    }
    if (value.is_discarded() || !value.is_object()) wrong("not a line of a timeline");
    if (number == 1) {
      if (!value.contains("horon_timeline") || !value.contains("rank") ||
          !value.contains("sync_ns") || !value["rank"].is_number_integer() ||
          !value["sync_ns"].is_array())
        wrong("not the timeline of a rank");
      parsed.rank = value["rank"].get<int>();
      for (const auto& moment : value["sync_ns"]) {
        if (!moment.is_number_integer()) wrong("a shared moment is not a number");
        parsed.sync.push_back(moment.get<int64_t>());
      }
      continue;
    }
    if (!value.contains("ts") || !value["ts"].is_number()) wrong("an event without a time");
    parsed.events.push_back(std::move(value));
  }
  if (parsed.sync.empty()) throw UsageError(timeline.path + ": empty, or without shared moments");
  return parsed;
}

// What to add to times of `other` to convert them to the clock of `first`, in microseconds.
double clock_offset(const Parsed& first, const Parsed& other) {
  std::vector<int64_t> differences;
  for (size_t i = 0; i < std::min(first.sync.size(), other.sync.size()); ++i)
    differences.push_back(first.sync[i] - other.sync[i]);
  std::sort(differences.begin(), differences.end());
  return static_cast<double>(differences[differences.size() / 2]) * 1e-3;
}

}  // namespace

std::string merge_timelines(const std::vector<TimelineText>& timelines,
                            std::vector<std::string>* notes) {
  require(!timelines.empty(), "no timelines to merge");
  std::vector<Parsed> all;
  for (const TimelineText& timeline : timelines) all.push_back(parse(timeline, notes));
  std::sort(all.begin(), all.end(),
            [](const Parsed& a, const Parsed& b) { return a.rank < b.rank; });
  for (size_t i = 1; i < all.size(); ++i)
    require(all[i - 1].rank != all[i].rank, fmt::format("{} and {} are both of rank {}",
                                                        all[i - 1].path, all[i].path, all[i].rank));
  nlohmann::json events = nlohmann::json::array();
  for (Parsed& one : all) {
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", one.rank},
                      {"args", {{"name", fmt::format("rank {}", one.rank)}}}});
    const double offset = clock_offset(all.front(), one);
    for (nlohmann::json& event : one.events) {
      event["ts"] = event["ts"].get<double>() + offset;
      events.push_back(std::move(event));
    }
  }
  return nlohmann::json({{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}).dump() +
         "\n";
}

}  // namespace horon
