#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace horon::report {

// An event of a run, as a value. All sinks receive the same events, in order:
//
//   kBegin       before the first step
//   kStep        loss, top1 (of the step, averaged over its samples), learning_rate, seconds (since
//                the first event), images_per_s, seconds_left, total_steps
//   kEpoch       after the last step of an epoch, before that step's own event; only metrics
//   kEvaluation  SPLIT_loss, SPLIT_top1, SPLIT_top5, seconds; text split: "validation" or "test"
//   kCheckpoint  a checkpoint is being written; text path
//   kEnd         the summary: see console.cc
//
// The names of numbers are those in log.jsonl and never change.
enum class EventKind { kBegin, kStep, kEpoch, kEvaluation, kCheckpoint, kEnd };

struct Event {
  template <typename T>
  using Named = std::map<std::string, T, std::less<>>;

  EventKind kind = EventKind::kBegin;
  uint64_t step = 0;  // steps taken
  double epoch = 0;   // passes over the data, with a fraction
  Named<double> numbers = {};
  Named<double> metrics = {};  // averages that the program requested, under its own names
  Named<std::string> texts = {};

  // The named number or text; 0 or "" if there is none.
  double number(std::string_view name) const {
    const auto found = numbers.find(name);
    return found == numbers.end() ? 0.0 : found->second;
  }
  std::string text(std::string_view name) const {
    const auto found = texts.find(name);
    return found == texts.end() ? std::string() : found->second;
  }
};

// Receives the events of a run, to show, store or send them. Owned by the reporter; called by the
// training thread between steps: write() must not block for long, and an exception from it ends the
// run.
//
//   struct Printer : horon::report::Sink {
//     void write(const Event& event) override { std::printf("%g\n", event.number("loss")); }
//   };
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(const Event& event) = 0;
};
using Sinks = std::vector<std::unique_ptr<Sink>>;

}  // namespace horon::report
