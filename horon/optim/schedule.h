#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace horon::optim {

enum class WarmUp { kLinear, kExponential };
enum class RateScale { kNone, kLinear };

// Shape of the learning rate: stages, "5:0.1,10:0.01", or a named curve. Derived from the text of
// --learning_rate_strategy, which is not validated here.
enum class RateShape { kConstant, kCosine, kPolynomial, kStages };
RateShape rate_shape(std::string_view strategy);

// Settings of the learning rate, under their names in the table of settings.
struct ScheduleOptions {
  std::string learning_rate_strategy = {};
  double learning_rate = 0;
  WarmUp lr_warmup_strategy = WarmUp::kLinear;
  double lr_warmup_epochs = 0;
  double lr_warmup_start = 0;
  double lr_power = 1;
  double lr_end = 0;
  RateScale scale_lr = RateScale::kNone;
  uint64_t lr_base_batch = 256;
};

// The learning rate as a function of time in epochs (fractions allowed). Pure; any thread.
//
//   const ScheduleOptions options{.learning_rate_strategy = "cosine", .learning_rate = 0.1};
//   const Schedule schedule(options, 90, 256);  // 90 epochs, global batch 256
//   optimizer.step(slices, schedule.at(2.5));   // in the middle of the third epoch
class Schedule {
 public:
  // Stages "5:0.001->0.4,10:0.4=>0.8,30:0.4": until epoch 5 linearly from 0.001 to 0.4, then until
  // epoch 10 to 0.8 by a constant factor, then 0.4; after the last stage its last value. With
  // lr_warmup_strategy exponential, the first linear stage becomes exponential. Otherwise "cosine",
  // "polynomial" or "" (constant), after a warm-up from lr_warmup_start to the rate. UsageError for
  // other texts.
  Schedule(const ScheduleOptions& options, double epochs, uint64_t global_batch);
  double at(double epoch) const;
  // The epoch from which finished stages leave the rate at 0 for an epoch or longer, so that
  // nothing would be learned.
  std::optional<double> idle_from() const;
  // Whether both have the same rates before `epoch`.
  bool is_same_until(double epoch, const Schedule& other) const;

 private:
  void read_stages(const std::string& text, double factor);
  void bend_first(const std::string& text);
  struct Stage {
    double end;  // epoch
    double from;
    double to;
    bool exponential;
  };
  std::vector<Stage> stages_;
  RateShape shape_ = RateShape::kConstant;
  double rate_ = 0;
  double warmup_ = 0;
  double start_ = 0;  // of the warm-up
  bool warms_exponentially_ = false;
  double epochs_ = 0;
  double power_ = 1;
  double end_ = 0;
};

// "rate 0.2, polynomial after a warm-up of 2 epochs": text for users.
std::string describe_rate(const ScheduleOptions& options);

}  // namespace horon::optim
