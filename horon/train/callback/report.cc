// Callbacks that tell people and programs how it goes.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/time.h"
#include "horon/file/file.h"
#include "horon/train/callback.h"

namespace horon::train {
namespace {

class Console final : public Callback {
 public:
  void on_begin(Moment& moment) override {
    first_step_ = moment.state.step;
    watch_.restart();
  }
  void on_step_end(Moment& moment) override {
    samples_ += moment.sums.score.count;
    const uint64_t step = moment.state.step;
    if (moment.config.hex_loss) {
      moment.screen.say(fmt::format("step {} loss {:a}", step, static_cast<float>(moment.loss)));
      return;
    }
    const double seconds = std::max(watch_.seconds(), 1e-6);
    const double speed = samples_ / seconds;
    if (moment.screen.has_bar()) {
      show_bar(moment, seconds, speed);
    } else if (const uint64_t each = moment.config.log_every_n_steps;
               each > 0 && step % each == 0) {
      moment.screen.say(
          fmt::format("step {}/{}  epoch {:.2f}  loss {:.4f}  rate {:.4g}  {:.0f} images/s", step,
                      moment.total_steps, moment.epoch, moment.loss, moment.rate, speed));
    }
  }
  void on_evaluated(Moment& moment) override {
    const Evaluation& found = moment.evaluation;
    std::string more;
    for (const auto& [name, value] : moment.averages)
      more += fmt::format("  {} {:.4g}", name, value);
    moment.screen.say(
        fmt::format("epoch {:>5.2f}  step {:>6}  {} loss {:.4f}  top-1 {:.2f} %  top-5 {:.2f} %{}",
                    moment.epoch, moment.state.step, found.split, found.loss, 100 * found.top1,
                    100 * found.top5, more));
  }
  void on_end(Moment& moment) override;

 private:
  void show_bar(const Moment& moment, double seconds, double speed) const {
    const uint64_t step = moment.state.step;
    const double left =
        seconds / static_cast<double>(step - first_step_) *
        static_cast<double>(moment.total_steps - std::min(step, moment.total_steps));
    const auto full = static_cast<size_t>(24.0 * static_cast<double>(step) /
                                          static_cast<double>(moment.total_steps));
    moment.screen.bar(fmt::format("[{}{}] step {}/{}  loss {:.4f}  {:.0f} images/s  {:.0f} s left",
                                  std::string(std::min<size_t>(full, 24), '#'),
                                  std::string(24 - std::min<size_t>(full, 24), '.'), step,
                                  moment.total_steps, moment.loss, speed, left));
  }
  Stopwatch watch_;
  double samples_ = 0;
  uint64_t first_step_ = 0;
};

void Console::on_end(Moment& moment) {
  const TrainResult& result = moment.result;
  const auto line = [&](const char* name, const std::string& value) {
    moment.screen.say(fmt::format("  {:<14}{}", name, value));
  };
  moment.screen.say("");
  line("model", fmt::format("{} on {}", moment.config.model, moment.config.dataset));
  line("ranks", fmt::format("{}, global batch {}", moment.ranks, moment.config.batch_size));
  const bool trained = result.seconds > 0;
  if (trained)
    line("steps", fmt::format("{} ({:.1f} epochs) in {:.1f} s, {:.0f} images/s", result.steps,
                              result.epochs, result.seconds, result.images_per_s));
  if (result.images_per_s > 0) line("training loss", fmt::format("{:.4f}", result.train_loss));
  if (result.validation.samples > 0)
    line("validation", fmt::format("top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f}, {} samples",
                                   100 * result.validation.top1, 100 * result.validation.top5,
                                   result.validation.loss, result.validation.samples));
  if (result.test_samples > 0)
    line("test", fmt::format("top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f}, {} samples",
                             100 * result.test_top1, 100 * result.test_top5, result.test_loss,
                             result.test_samples));
  if (!result.checkpoint.empty()) line("checkpoint", result.checkpoint);
  if (!result.best.empty())
    line("best", fmt::format("{} (top-1 {:.2f} %)", result.best, 100 * moment.state.best_accuracy));
  if (result.input_bytes > 0)
    line("input", format_bytes(result.input_bytes) + " of memory on this rank");
  if (result.corrupt_records > 0)
    line("passed over",
         fmt::format("{} corrupt record(s): {}", result.corrupt_records, result.corrupt_reason));
  const std::string log = file::join(result.model_dir, "log.jsonl");
  if (trained && moment.rank == 0 && file::exists(log)) line("log", log);
  if (result.interrupted)
    moment.screen.say(trained ? fmt::format("\ninterrupted; go on with: {}", moment.go_on)
                              : "\ninterrupted");
}

// One object a line: of every log_every_n_steps-th step, and of each evaluation.
class JsonLines final : public Callback {
 public:
  void on_begin(Moment& moment) override {
    if (moment.rank == 0) file_ = file::join(moment.config.model_dir, "log.jsonl");
  }
  void on_step_end(Moment& moment) override {
    const uint64_t each = moment.config.log_every_n_steps;
    if (moment.ends_epoch && !moment.averages.empty()) {
      nlohmann::json entry = {{"step", moment.state.step}, {"epoch", moment.epoch}};
      for (const auto& [name, value] : moment.averages) entry[name] = value;
      write(moment, entry);
    }
    if (each == 0 || moment.state.step % each != 0) return;
    write(moment, {{"step", moment.state.step},
                   {"epoch", moment.epoch},
                   {"loss", moment.loss},
                   {"top1", moment.sums.score.top1 / std::max(moment.sums.score.count, 1.0)},

                   {"learning_rate", moment.rate},
                   {"seconds", watch_.seconds()}});
  }
  void on_evaluated(Moment& moment) override {
    const Evaluation& found = moment.evaluation;
    write(moment, {{"step", moment.state.step},
                   {"epoch", moment.epoch},
                   {found.split + "_loss", found.loss},
                   {found.split + "_top1", found.top1},
                   {found.split + "_top5", found.top5},
                   {"seconds", watch_.seconds()}});
  }

 private:
  // A disk that is full costs lines, not the run.
  void write(Moment& moment, const nlohmann::json& entry) {
    if (file_.empty()) return;
    try {
      file::append(file_, entry.dump() + "\n");
    } catch (const IoError& error) {
      if (!std::exchange(complained_, true))
        moment.screen.say(fmt::format("the log misses lines: {}", error.what()));
    }
  }
  std::string file_;
  bool complained_ = false;
  Stopwatch watch_;
};

}  // namespace

std::unique_ptr<Callback> make_console() { return std::make_unique<Console>(); }
std::unique_ptr<Callback> make_json_lines() { return std::make_unique<JsonLines>(); }

}  // namespace horon::train
