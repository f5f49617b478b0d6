// Callbacks that tell people and programs how it goes: a run's moments as events (report/event.h).
#include <algorithm>
#include <utility>

#include "horon/base/time.h"
#include "horon/file/file.h"
#include "horon/report/console.h"
#include "horon/report/curves.h"
#include "horon/report/json_lines.h"
#include "horon/train/callback.h"

namespace horon::train {
namespace {

using report::Event;
using report::EventKind;

std::unique_ptr<report::Sink> console_of(const Moment& moment) {
  return std::make_unique<report::Console>(
      moment.screen, report::ConsoleOptions{.every = moment.config.log_every_n_steps,
                                            .hex_loss = moment.config.hex_loss});
}

std::unique_ptr<report::Sink> log_of(const Moment& moment) {
  return std::make_unique<report::JsonLines>(
      report::log_of(moment.config.model_dir), moment.config.log_every_n_steps,
      [&screen = moment.screen](const std::string& line) { screen.say(line); });
}

// Rank 0's; the others have no sinks.
class Reporter final : public Callback {
 public:
  explicit Reporter(SinkMaker make) : make_(std::move(make)) {}

  void on_begin(Moment& moment) override {
    if (moment.rank == 0) sinks_ = make_(moment);
    first_step_ = moment.state.step;
    since_begin_.restart();
    tell(event_of(EventKind::kBegin, moment));
  }
  void on_step_end(Moment& moment) override {
    if (sinks_.empty()) return;
    if (moment.ends_epoch) {
      Event event = event_of(EventKind::kEpoch, moment);
      add_averages(event, moment);
      tell(event);
    }
    tell(step_of(moment));
  }
  void on_evaluated(Moment& moment) override {
    const Evaluation& found = moment.evaluation;
    Event event = event_of(EventKind::kEvaluation, moment);
    event.numbers = {{found.split + "_loss", found.loss},
                     {found.split + "_top1", found.top1},
                     {found.split + "_top5", found.top5},
                     {"seconds", since_made_.seconds()}};
    event.texts = {{"split", found.split}};
    add_averages(event, moment);
    tell(event);
  }
  void on_boundary(Moment& moment) override {
    if (moment.saved.empty()) return;
    Event event = event_of(EventKind::kCheckpoint, moment);
    event.texts = {{"path", moment.saved}};
    tell(event);
  }
  void on_end(Moment& moment) override;

 private:
  static Event event_of(EventKind kind, const Moment& moment) {
    return {.kind = kind, .step = moment.state.step, .epoch = moment.epoch};
  }
  static void add_averages(Event& event, const Moment& moment) {
    event.metrics.insert(moment.averages.begin(), moment.averages.end());
  }
  Event step_of(const Moment& moment) {
    samples_ += moment.sums.score.count;
    const uint64_t step = moment.state.step;
    const double seconds = std::max(since_begin_.seconds(), 1e-6);
    const double left =
        seconds / static_cast<double>(step - first_step_) *
        static_cast<double>(moment.total_steps - std::min(step, moment.total_steps));
    Event event = event_of(EventKind::kStep, moment);
    event.numbers = {{"loss", moment.loss},
                     {"top1", moment.sums.score.top1 / std::max(moment.sums.score.count, 1.0)},
                     {"learning_rate", moment.rate},
                     {"seconds", since_made_.seconds()},
                     {"images_per_s", samples_ / seconds},
                     {"seconds_left", left},
                     {"total_steps", static_cast<double>(moment.total_steps)}};
    return event;
  }
  void tell(const Event& event) {
    for (const auto& sink : sinks_) sink->write(event);
  }

  SinkMaker make_;
  report::Sinks sinks_;
  Stopwatch since_made_;
  Stopwatch since_begin_;
  double samples_ = 0;
  uint64_t first_step_ = 0;
};

void Reporter::on_end(Moment& moment) {
  const TrainResult& result = moment.result;
  Event event = event_of(EventKind::kEnd, moment);
  event.step = result.steps;
  event.epoch = result.epochs;
  event.numbers = {{"ranks", static_cast<double>(moment.ranks)},
                   {"batch_size", static_cast<double>(moment.config.batch_size)},
                   {"seconds", result.seconds},
                   {"images_per_s", result.images_per_s},
                   {"train_loss", result.train_loss},
                   {"validation_loss", result.validation.loss},
                   {"validation_top1", result.validation.top1},
                   {"validation_top5", result.validation.top5},
                   {"validation_samples", static_cast<double>(result.validation.samples)},
                   {"test_loss", result.test_loss},
                   {"test_top1", result.test_top1},
                   {"test_top5", result.test_top5},
                   {"test_samples", static_cast<double>(result.test_samples)},
                   {"best_top1", moment.state.best_accuracy},
                   {"seconds_encrypting", result.seconds_encrypting},
                   {"input_bytes", static_cast<double>(result.input_bytes)},
                   {"corrupt_records", static_cast<double>(result.corrupt_records)},
                   {"interrupted", result.interrupted ? 1.0 : 0.0}};
  event.texts = {{"model", moment.config.model},
                 {"dataset", moment.config.dataset},
                 {"checkpoint", result.checkpoint},
                 {"best", result.best},
                 {"corrupt_reason", result.corrupt_reason},
                 {"go_on", moment.resume_command}};
  const std::string log = report::log_of(result.model_dir);
  if (moment.rank == 0 && file::exists(log)) event.texts["log"] = log;
  tell(event);
}

std::unique_ptr<Callback> report_to(std::unique_ptr<report::Sink> (*make)(const Moment&)) {
  return make_reporter([make](const Moment& moment) {
    report::Sinks sinks;
    sinks.push_back(make(moment));
    return sinks;
  });
}

}  // namespace

std::unique_ptr<Callback> make_reporter(SinkMaker make) {
  return std::make_unique<Reporter>(std::move(make));
}
std::unique_ptr<Callback> make_console() { return report_to(console_of); }
std::unique_ptr<Callback> make_json_lines() { return report_to(log_of); }
std::unique_ptr<Callback> make_report() {
  return make_reporter([](const Moment& moment) {
    report::Sinks sinks;
    sinks.push_back(log_of(moment));
    sinks.push_back(console_of(moment));
    return sinks;
  });
}

}  // namespace horon::train
