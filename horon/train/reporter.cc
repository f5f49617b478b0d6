#include "horon/train/reporter.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "horon/file/file.h"

namespace horon::train {

Reporter::Reporter(bool speaks, const TrainConfig& config, int ranks, uint64_t total_steps)
    : speaks_(speaks),
      terminal_(isatty(STDOUT_FILENO) == 1),
      config_(config),
      ranks_(ranks),
      total_(total_steps) {}

void Reporter::open(const std::string& folder) {
  if (speaks_) file_ = file::join(folder, "log.jsonl");
}

void Reporter::log(const std::string& json) {
  if (!file_.empty()) file::append(file_, json + "\n");
}

void Reporter::clear_bar() {
  if (std::exchange(bar_, false)) fmt::print("\r{:110}\r", "");
}

void Reporter::begin(const std::string& about) {
  if (!speaks_) return;
  fmt::print("{}\n", about);
  std::fflush(stdout);
  watch_.restart();
}

void Reporter::say(const std::string& line) {
  if (!speaks_) return;
  clear_bar();
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void Reporter::step(uint64_t step, double epoch, double loss, double rate, uint64_t samples) {
  if (!speaks_) return;
  samples_ += samples;
  if (first_step_ == UINT64_MAX) first_step_ = step - 1;
  if (config_.hex_loss) say(fmt::format("step {} loss {:a}", step, static_cast<float>(loss)));
  const bool due = config_.log_every_n_steps > 0 && step % config_.log_every_n_steps == 0;
  if (due)
    log(nlohmann::json({{"step", step},
                        {"epoch", epoch},
                        {"loss", loss},
                        {"learning_rate", rate},
                        {"seconds", watch_.seconds()}})
            .dump());
  const double seconds = std::max(watch_.seconds(), 1e-6);
  const double speed = static_cast<double>(samples_) / seconds;
  if (terminal_ && !config_.hex_loss) {
    const double left = seconds / static_cast<double>(step - first_step_) *
                        static_cast<double>(total_ - std::min(step, total_));
    const auto full = static_cast<size_t>(24.0 * static_cast<double>(step) /
                                          static_cast<double>(std::max<uint64_t>(total_, 1)));
    fmt::print("\r[{}{}] step {}/{}  loss {:.4f}  {:.0f} images/s  {:.0f} s left   ",
               std::string(std::min<size_t>(full, 24), '#'),
               std::string(24 - std::min<size_t>(full, 24), '.'), step, total_, loss, speed, left);
    std::fflush(stdout);
    bar_ = true;
  } else if (due && !config_.hex_loss && step % (5 * config_.log_every_n_steps) == 0) {
    say(fmt::format("step {}/{}  epoch {:.2f}  loss {:.4f}  rate {:.4g}  {:.0f} images/s", step,
                    total_, epoch, loss, rate, speed));
  }
}

void Reporter::evaluated(uint64_t step, double epoch, double loss, double top1, double top5) {
  if (!speaks_) return;
  say(fmt::format("epoch {:>5.2f}  step {:>6}  test loss {:.4f}  top-1 {:.2f} %  top-5 {:.2f} %",
                  epoch, step, loss, 100 * top1, 100 * top5));
  log(nlohmann::json({{"step", step},
                      {"epoch", epoch},
                      {"test_loss", loss},
                      {"test_top1", top1},
                      {"test_top5", top5},
                      {"seconds", watch_.seconds()}})
          .dump());
}

void Reporter::summary(const TrainResult& result) {
  if (!speaks_) return;
  clear_bar();
  fmt::print("\n");
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("  {:<14}{}\n", name, value);
  };
  line("model", fmt::format("{} on {}", config_.model, config_.dataset));
  line("ranks", fmt::format("{}, global batch {}", ranks_, global_batch(config_, ranks_)));
  line("steps", fmt::format("{} ({:.1f} epochs) in {:.1f} s, {:.0f} images/s", result.steps,
                            result.epochs, result.seconds, result.images_per_s));
  line("training loss", fmt::format("{:.4f}", result.train_loss));
  if (result.test_samples > 0)
    line("test", fmt::format("top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f}, {} samples",
                             100 * result.test_top1, 100 * result.test_top5, result.test_loss,
                             result.test_samples));
  if (!result.checkpoint.empty()) line("checkpoint", result.checkpoint);
  if (!result.model_dir.empty()) line("log", file::join(result.model_dir, "log.jsonl"));
  if (result.interrupted)
    fmt::print("\ninterrupted; go on with: horon train --model_dir {}\n", result.model_dir);
  std::fflush(stdout);
}

}  // namespace horon::train
