#include "horon/report/console.h"

#include <fmt/format.h>

#include <algorithm>

#include "horon/base/text.h"

namespace horon::report {
namespace {

constexpr double kNotableEncryption = 0.02;  // of the run

uint64_t whole(const Event& event, std::string_view name) {
  return static_cast<uint64_t>(event.number(name));
}

std::string bar_of(const Event& event) {
  const uint64_t total = whole(event, "total_steps");
  const auto full = std::min<size_t>(
      static_cast<size_t>(24.0 * static_cast<double>(event.step) / static_cast<double>(total)), 24);
  return fmt::format("[{}{}] step {}/{}  loss {:.4f}  {:.0f} images/s  {:.0f} s left",
                     std::string(full, '#'), std::string(24 - full, '.'), event.step, total,
                     event.number("loss"), event.number("images_per_s"),
                     event.number("seconds_left"));
}

// "top-1 99.00 %, top-5 100.00 %, loss 0.0123, 2000 samples"
std::string score_of(const Event& event, const std::string& split) {
  return fmt::format("top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f}, {} samples",
                     100 * event.number(split + "_top1"), 100 * event.number(split + "_top5"),
                     event.number(split + "_loss"), whole(event, split + "_samples"));
}

}  // namespace

void Console::write(const Event& event) {
  if (event.kind == EventKind::kStep) tell_step(event);
  if (event.kind == EventKind::kEvaluation) tell_evaluation(event);
  if (event.kind == EventKind::kEnd) tell_end(event);
}

void Console::tell_step(const Event& event) {
  if (options_.hex_loss) {
    screen_.say(
        fmt::format("step {} loss {:a}", event.step, static_cast<float>(event.number("loss"))));
  } else if (screen_.has_bar()) {
    screen_.bar(bar_of(event));
  } else if (options_.every > 0 && event.step % options_.every == 0) {
    screen_.say(fmt::format("step {}/{}  epoch {:.2f}  loss {:.4f}  rate {:.4g}  {:.0f} images/s",
                            event.step, whole(event, "total_steps"), event.epoch,
                            event.number("loss"), event.number("learning_rate"),
                            event.number("images_per_s")));
  }
}

void Console::tell_evaluation(const Event& event) {
  const std::string split = event.text("split");
  std::string more;
  for (const auto& [name, value] : event.metrics) more += fmt::format("  {} {:.4g}", name, value);
  screen_.say(
      fmt::format("epoch {:>5.2f}  step {:>6}  {} loss {:.4f}  top-1 {:.2f} %  top-5 "
                  "{:.2f} %{}",
                  event.epoch, event.step, split, event.number(split + "_loss"),
                  100 * event.number(split + "_top1"), 100 * event.number(split + "_top5"), more));
}

void Console::tell_end(const Event& event) {
  const auto line = [&](const char* name, const std::string& value) {
    screen_.say(fmt::format("  {:<14}{}", name, value));
  };
  screen_.say("");
  line("model", fmt::format("{} on {}", event.text("model"), event.text("dataset")));
  line("ranks",
       fmt::format("{}, global batch {}", whole(event, "ranks"), whole(event, "batch_size")));
  const bool trained = event.number("seconds") > 0;
  if (trained)
    line("steps", fmt::format("{} ({:.1f} epochs) in {:.1f} s, {:.0f} images/s", event.step,
                              event.epoch, event.number("seconds"), event.number("images_per_s")));
  if (event.number("images_per_s") > 0)
    line("training loss", fmt::format("{:.4f}", event.number("train_loss")));
  for (const char* split : {"validation", "test"})
    if (whole(event, std::string(split) + "_samples") > 0) line(split, score_of(event, split));
  if (!event.text("checkpoint").empty()) line("checkpoint", event.text("checkpoint"));
  if (!event.text("best").empty())
    line("best",
         fmt::format("{} (top-1 {:.2f} %)", event.text("best"), 100 * event.number("best_top1")));
  const double encrypting = event.number("seconds_encrypting");
  if (trained && encrypting > kNotableEncryption * event.number("seconds"))
    line("encryption",
         fmt::format("{:.1f} s, {:.0f} % of the run; --wire plain turns it off (only on networks "
                     "that nobody else can read)",
                     encrypting, 100 * encrypting / event.number("seconds")));
  if (const uint64_t bytes = whole(event, "input_bytes"); bytes > 0)
    line("input", format_bytes(bytes) + " of memory on this rank");
  if (const uint64_t records = whole(event, "corrupt_records"); records > 0)
    line("skipped", fmt::format("{} corrupt record(s): {}", records, event.text("corrupt_reason")));
  if (trained && !event.text("log").empty()) line("log", event.text("log"));
  if (event.number("interrupted") > 0)
    screen_.say(trained ? fmt::format("\ninterrupted; to resume: {}", event.text("go_on"))
                        : "\ninterrupted");
}

}  // namespace horon::report
