#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace horon::train {

// Everything that decides what a run does. One table (fields) gives each member its flag, its help
// and its place in files.
struct TrainConfig {
  std::string run_mode = "train";
  std::string model = "resnet_tiny";
  std::string dataset = "shapes10";
  std::string data_dir;
  std::string model_dir;       // empty: a new folder below ./runs
  std::string preprocessing;   // empty: the data set's usual one
  uint64_t image_size = 0;     // 0: that of its pictures where all are alike and small, or 224
  uint64_t num_classes = 0;    // 0: the data set's
  uint64_t train_samples = 0;  // of made-up data; 0: its default
  uint64_t batch_size = 128;
  uint64_t batch_size_per_replica = 0;
  uint64_t train_epochs = 10;
  uint64_t max_number_of_steps = 0;
  double learning_rate = 0.2;
  std::string learning_rate_strategy;
  std::string lr_warmup_strategy = "linear";
  double lr_warmup_epochs = 0;
  double lr_warmup_start = 0;
  double lr_power = 1.0;
  double lr_end = 0.0;
  std::string scale_lr = "none";
  uint64_t lr_base_batch = 256;
  std::string optimizer = "momentum";
  double momentum = 0.9;
  bool nesterov = true;
  double weight_decay = 5e-4;
  double label_smoothing = 0.0;
  std::string dtype = "f32";
  std::string distribution_strategy;  // empty: mirrored if num_gpus > 1, else off
  uint64_t num_gpus = 1;
  std::string device = "auto";
  bool sync_batch_norm = false;
  uint64_t seed = 1;
  std::string reduction = "fast";
  uint64_t logical_shards = 8;
  uint64_t threads_per_rank = 0;  // 0: cores / ranks; with exact: 1
  uint64_t input_threads = 1;
  uint64_t validation_split = 0;
  uint64_t backward_passes_per_step = 1;
  bool drop_remainder = false;
  uint64_t max_corrupt_records = 0;
  std::string nan_policy = "abort";
  uint64_t epochs_between_evals = 1;
  bool skip_eval = false;
  uint64_t save_checkpoints_steps = 0;
  double save_checkpoints_secs = 0;
  uint64_t save_checkpoints_epochs = 1;
  uint64_t keep_checkpoint_max = 5;
  bool keep_best = true;
  std::string resume = "auto";
  std::string checkpoint_path;
  uint64_t log_every_n_steps = 20;
  bool hex_loss = false;
};

struct Field {
  using Member = std::variant<std::string TrainConfig::*, uint64_t TrainConfig::*,
                              double TrainConfig::*, bool TrainConfig::*>;
  enum Scope : uint8_t {
    kFree,     // a run that goes on may change it; the ranks of a run may not differ
    kMatters,  // a run that goes on must have the same
    kOwn,      // each rank may have its own: places, threads, what is printed
  };
  const char* name;
  Member member;
  const char* help;
  Scope scope;
  double low = 0;  // of numbers
  double high = std::numeric_limits<double>::max();
  std::vector<std::string> words = {};  // all that are allowed, if there are any; in any case
};
std::span<const Field> fields();
// Null for an unknown name.
const Field* find_field(const std::string& name);

// UsageError naming the setting, the nearest one for an unknown name, and what is allowed.
void set_field(TrainConfig& config, const std::string& name, const std::string& value);
std::string get_field(const TrainConfig& config, const Field& field);
nlohmann::json to_json(const TrainConfig& config);
TrainConfig config_from_json(const nlohmann::json& json);

// Contradictions and values that cannot be; UsageError. `ranks`: replicas of the whole job.
void check_config(const TrainConfig& config, int ranks);
// Global batch: batch_size, or batch_size_per_replica * ranks.
uint64_t global_batch(const TrainConfig& config, int ranks);
// Replicas inside one process.
int replicas_of(const TrainConfig& config);
// Whether the learning rate is given by stages, "5:0.1,10:0.01", not by a shape.
bool has_stages(const TrainConfig& config);
// What a resumed run changed that it must not: "learning_rate: 0.1 was 0.2".
std::vector<std::string> differences(const TrainConfig& now, const TrainConfig& before);

}  // namespace horon::train
