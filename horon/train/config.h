#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "horon/base/setting.h"
#include "horon/comm/types.h"
#include "horon/device/dtype.h"
#include "horon/optim/schedule.h"
#include "horon/optim/update_rule.h"

namespace horon::train {

using optim::OptimizerKind;
using optim::RateScale;
using optim::RateShape;
using optim::WarmUp;
enum class RunMode { kTrain, kEvaluate };
enum class Strategy { kDefault, kOff, kOneDevice, kMirrored, kMultiWorkerMirrored, kHorovod };
enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class NanPolicy { kAbort, kSkipStep };
enum class ResumeMode { kAuto, kNever };

// All settings of a run. Each member is a row of the table of settings (base/setting.h) under its
// own name; the table documents its meaning, allowed values, and whether a resumed run may change
// it. A value: it owns nothing else, and check_config() throws UsageError for contradictions.
//
//   horon::TrainConfig config;
//   horon::train::set_field(config, "learning_rate", "0.1");
struct TrainConfig {
  RunMode run_mode = RunMode::kTrain;
  std::string model = "resnet_tiny";
  std::string dataset = "shapes10";
  std::string data_dir;
  std::string model_dir;      // empty: a new folder in ./runs
  std::string preprocessing;  // empty: the data set's default
  uint64_t image_size =
      0;  // pixels; 0: the images' own size if all are equal and small, otherwise 224
  uint64_t num_classes = 0;    // 0: the data set's
  uint64_t train_samples = 0;  // of generated data; 0: its default
  uint64_t batch_size = 128;
  uint64_t batch_size_per_replica = 0;
  uint64_t train_epochs = 10;
  uint64_t max_number_of_steps = 0;
  double learning_rate = 0.2;
  std::string learning_rate_strategy;  // empty: constant; see rate_shape()
  WarmUp lr_warmup_strategy = WarmUp::kLinear;
  double lr_warmup_epochs = 0;
  double lr_warmup_start = 0;
  double lr_power = 1.0;
  double lr_end = 0.0;
  RateScale scale_lr = RateScale::kNone;
  uint64_t lr_base_batch = 256;
  OptimizerKind optimizer = OptimizerKind::kMomentum;
  double momentum = 0.9;
  bool nesterov = true;
  double weight_decay = 5e-4;
  double label_smoothing = 0.0;
  DType dtype = DType::kF32;                            // or kBF16
  Strategy distribution_strategy = Strategy::kDefault;  // mirrored if num_gpus > 1, else off
  uint64_t num_gpus = 1;
  DeviceChoice device = DeviceChoice::kAuto;
  bool sync_batch_norm = false;
  uint64_t seed = 1;
  Reduction reduction = Reduction::kFast;
  uint64_t logical_shards = 8;
  uint64_t threads_per_rank = 0;  // 0: cores / ranks; with exact: 1
  uint64_t input_threads = 1;
  uint64_t validation_split = 0;
  uint64_t backward_passes_per_step = 1;
  bool drop_remainder = false;
  uint64_t max_corrupt_records = 0;
  NanPolicy nan_policy = NanPolicy::kAbort;
  uint64_t epochs_between_evals = 1;
  bool skip_eval = false;
  uint64_t save_checkpoints_steps = 0;
  double save_checkpoints_secs = 0;
  uint64_t save_checkpoints_epochs = 1;
  uint64_t keep_checkpoint_max = 5;
  bool keep_best = true;
  ResumeMode resume = ResumeMode::kAuto;
  std::string checkpoint_path;
  uint64_t log_every_n_steps = 20;
  bool hex_loss = false;
};

// Sets a member by its name in the table or in another program (`horon info --explain NAME`).
// UsageError that begins with `where` (empty: the flag) and says what is allowed; for an unknown
// name it suggests the nearest one.
void set_field(TrainConfig& config, std::string_view name, std::string_view value,
               std::string_view where = "");
std::string get_field(const TrainConfig& config, std::string_view name);
nlohmann::json to_json(const TrainConfig& config);
TrainConfig config_from_json(const nlohmann::json& json);

// Rejects contradictions and impossible values with a UsageError. `ranks`: replicas of the whole
// job.
void check_config(const TrainConfig& config, int ranks);
// Global batch: batch_size, or batch_size_per_replica * ranks.
uint64_t global_batch(const TrainConfig& config, int ranks);
// Replicas inside one process.
int replicas_of(const TrainConfig& config);
// The shape of the learning rate: stages, "5:0.1,10:0.01", or a named curve.
inline RateShape rate_shape(const TrainConfig& config) {
  return optim::rate_shape(config.learning_rate_strategy);
}
inline bool has_stages(const TrainConfig& config) {
  return rate_shape(config) == RateShape::kStages;
}
// What a resumed run changed although it must not: "learning_rate: 0.1 was 0.2".
std::vector<std::string> differences(const TrainConfig& now, const TrainConfig& before);

}  // namespace horon::train
