#include "horon/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon::optim {
namespace {

double number(const std::string& text, const std::string& whole) {
  const auto value = parse_number(trim(text));
  if (!value || !std::isfinite(*value) || *value < 0)
    throw UsageError(
        fmt::format("--learning_rate_strategy {}: '{}' is no number of at least 0", whole, text));
  return *value;
}

double between(double from, double to, double fraction, bool exponential) {
  return exponential ? from * std::pow(to / from, fraction) : from + (to - from) * fraction;
}

}  // namespace

RateShape rate_shape(std::string_view strategy) {
  if (strategy.empty()) return RateShape::kConstant;
  if (strategy == "cosine") return RateShape::kCosine;
  return strategy == "polynomial" ? RateShape::kPolynomial : RateShape::kStages;
}

Schedule::Schedule(const ScheduleOptions& options, double epochs, uint64_t global_batch)
    : shape_(rate_shape(options.learning_rate_strategy)),
      rate_(options.learning_rate),
      warmup_(options.lr_warmup_epochs),
      start_(options.lr_warmup_start),
      warms_exponentially_(options.lr_warmup_strategy == WarmUp::kExponential),
      epochs_(epochs),
      power_(options.lr_power),
      end_(options.lr_end) {
  const double factor =
      options.scale_lr == RateScale::kLinear
          ? static_cast<double>(global_batch) / static_cast<double>(options.lr_base_batch)
          : 1.0;
  rate_ *= factor;
  start_ = warms_exponentially_ && start_ == 0 ? rate_ * 0.01 : start_ * factor;
  if (shape_ == RateShape::kStages) read_stages(options.learning_rate_strategy, factor);
}

void Schedule::read_stages(const std::string& text, double factor) {
  double last = 0;
  for (const std::string& part : split(text, ',')) {
    const size_t colon = part.find(':');
    if (colon == std::string::npos)
      throw UsageError(fmt::format(
          "--learning_rate_strategy {}: 'epoch:rate' stages, cosine or polynomial expected", text));
    const std::string rates = part.substr(colon + 1);
    const size_t linear = rates.find("->");
    const size_t curved = rates.find("=>");
    const size_t arrow = std::min(linear, curved);
    Stage stage{number(part.substr(0, colon), text), 0, 0, curved < linear};
    stage.from = number(rates.substr(0, arrow), text) * factor;
    stage.to =
        arrow == std::string::npos ? stage.from : number(rates.substr(arrow + 2), text) * factor;
    if (stage.end <= last)
      throw UsageError(fmt::format("--learning_rate_strategy {}: epoch {} must be greater than {}",
                                   text, stage.end, last));
    if (stage.exponential && (stage.from <= 0 || stage.to <= 0))
      throw UsageError(fmt::format("--learning_rate_strategy {}: '=>' needs rates above 0", text));
    last = stage.end;
    stages_.push_back(stage);
  }
  if (warms_exponentially_) bend_first(text);
}

void Schedule::bend_first(const std::string& text) {
  const auto first = std::find_if(stages_.begin(), stages_.end(), [](const Stage& stage) {
    return stage.from != stage.to || stage.exponential;
  });
  if (first == stages_.end() || first->from <= 0 || first->to <= 0)
    throw UsageError(
        fmt::format("--lr_warmup_strategy exponential with the stages {}: a first stage "
                    "'epoch:a->b' with rates above 0 is required",
                    text));
  first->exponential = true;
}

std::optional<double> Schedule::idle_from() const {
  if (stages_.empty() || stages_.back().to > 0 || epochs_ < stages_.back().end + 1)
    return std::nullopt;
  return stages_.back().end;
}

bool Schedule::is_same_until(double epoch, const Schedule& other) const {
  constexpr int kPlaces = 1000;
  for (int i = 0; i < kPlaces; ++i) {
    if (at(epoch * i / kPlaces) != other.at(epoch * i / kPlaces)) return false;
  }
  return true;
}

double Schedule::at(double epoch) const {
  if (!stages_.empty()) {
    double begin = 0;
    for (const Stage& stage : stages_) {
      if (epoch < stage.end)
        return between(stage.from, stage.to, (epoch - begin) / (stage.end - begin),
                       stage.exponential);
      begin = stage.end;
    }
    return stages_.back().to;
  }
  if (epoch < warmup_) return between(start_, rate_, epoch / warmup_, warms_exponentially_);
  // The decay covers all epochs after the warm-up.
  const double fraction =
      epochs_ > warmup_ ? std::clamp((epoch - warmup_) / (epochs_ - warmup_), 0.0, 1.0) : 1.0;
  if (shape_ == RateShape::kCosine)
    return end_ + (rate_ - end_) * 0.5 * (1.0 + std::cos(std::numbers::pi * fraction));
  if (shape_ == RateShape::kPolynomial)
    return end_ + (rate_ - end_) * std::pow(1.0 - fraction, power_);
  return rate_;
}

std::string describe_rate(const ScheduleOptions& options) {
  if (rate_shape(options.learning_rate_strategy) == RateShape::kStages)
    return "learning rate " + options.learning_rate_strategy;
  return fmt::format(
      "learning rate {:g}, {}{}", options.learning_rate,
      options.learning_rate_strategy.empty() ? "constant" : options.learning_rate_strategy,
      options.lr_warmup_epochs > 0
          ? fmt::format(" after a warm-up of {:g} epoch(s)", options.lr_warmup_epochs)
          : "");
}

}  // namespace horon::optim
