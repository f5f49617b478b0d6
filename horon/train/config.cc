#include "horon/train/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon::train {
namespace {

using C = TrainConfig;
const std::array kFields = {
    Field{"run_mode", &C::run_mode, "train, or eval: as `horon evaluate`", false},
    Field{"model", &C::model,
          "resnet_tiny, resnet_v1_18/20/50/56/110, resnet_v1_50_slim, lenet, workshop_cnn", true},
    Field{"dataset", &C::dataset, "see `horon data stats --help`", true},
    Field{"data_dir", &C::data_dir, "where its files are", false},
    Field{"model_dir", &C::model_dir,
          "folder for checkpoints and logs; default: a new one below ./runs", false},
    Field{"preprocessing", &C::preprocessing, "default: the data set's usual one", true},
    Field{"image_size", &C::image_size, "0: the data set's, or 224", true},
    Field{"num_classes", &C::num_classes, "0: the data set's", true},
    Field{"train_samples", &C::train_samples, "of shapes10 and synthetic; 0: their default", true},
    Field{"batch_size", &C::batch_size,
          "GLOBAL batch: samples of one step on all replicas together", true},
    Field{"batch_size_per_replica", &C::batch_size_per_replica,
          "the same, of one replica; wins over batch_size", false},
    Field{"train_epochs", &C::train_epochs, "passes over the data", false},
    Field{"max_number_of_steps", &C::max_number_of_steps,
          "optimizer steps; 0: as train_epochs says", false},
    Field{"learning_rate", &C::learning_rate, "of the global batch, as it is", true},
    Field{"learning_rate_strategy", &C::learning_rate_strategy,
          "stages by epoch (5:0.001->0.4,30:0.4,60:0.04), cosine, polynomial; default: constant",
          true},
    Field{"lr_warmup_strategy", &C::lr_warmup_strategy, "linear or exponential", true},
    Field{"lr_warmup_epochs", &C::lr_warmup_epochs, "of constant, cosine and polynomial", true},
    Field{"lr_power", &C::lr_power, "of polynomial", true},
    Field{"lr_end", &C::lr_end, "of cosine and polynomial", true},
    Field{"scale_lr", &C::scale_lr,
          "none, or linear: times global batch / lr_base_batch; never by ranks", true},
    Field{"lr_base_batch", &C::lr_base_batch, "for scale_lr", true},
    Field{"optimizer", &C::optimizer, "sgd, momentum, adam, lars", true},
    Field{"momentum", &C::momentum, "of momentum and lars", true},
    Field{"nesterov", &C::nesterov, "of momentum", true},
    Field{"weight_decay", &C::weight_decay,
          "on weights of convolutions and layers, not on BN and biases", true},
    Field{"label_smoothing", &C::label_smoothing, "0 to 1", true},
    Field{"dtype", &C::dtype, "f32, or bf16 (weights stay f32)", true},
    Field{"distribution_strategy", &C::distribution_strategy,
          "off, one_device, mirrored, multi_worker_mirrored, horovod", false},
    Field{"num_gpus", &C::num_gpus, "replicas inside a process (mirrored, multi_worker_mirrored)",
          false},
    Field{"device", &C::device, "cpu, cuda, or auto: a GPU if LibTorch can use one", false},
    Field{"sync_batch_norm", &C::sync_batch_norm,
          "batch norm takes its statistics over the samples of all ranks", true},
    Field{"seed", &C::seed, "of weights, order and augmentation", true},
    Field{"reduction", &C::reduction, "fast, or exact: the same bits on any number of ranks", true},
    Field{"logical_shards", &C::logical_shards,
          "of exact: parts of a batch; at least the number of ranks", true},
    Field{"threads_per_rank", &C::threads_per_rank, "0: cores / ranks; with exact: 1", true},
    Field{"input_threads", &C::input_threads, "that make batches", false},
    Field{"validation_split", &C::validation_split,
          "samples cut from the training set; evaluated instead of the test set", true},
    Field{"backward_passes_per_step", &C::backward_passes_per_step,
          "batches whose gradients are averaged before a step", true},
    Field{"drop_remainder", &C::drop_remainder, "leave out the last, short batch of an epoch",
          true},
    Field{"max_corrupt_records", &C::max_corrupt_records,
          "bad records of a rank that are passed over", false},
    Field{"nan_policy", &C::nan_policy, "abort, or skip-step, when a gradient is not finite",
          false},
    Field{"epochs_between_evals", &C::epochs_between_evals, "0: only at the end", false},
    Field{"save_checkpoints_steps", &C::save_checkpoints_steps, "0: not by steps", false},
    Field{"save_checkpoints_secs", &C::save_checkpoints_secs, "0: not by time", false},
    Field{"save_checkpoints_epochs", &C::save_checkpoints_epochs, "0: not by epochs", false},
    Field{"keep_checkpoint_max", &C::keep_checkpoint_max, "older ones are removed", false},
    Field{"keep_best", &C::keep_best, "the weights of the best test accuracy in model_dir/best",
          false},
    Field{"resume", &C::resume, "auto: from the newest good checkpoint in model_dir; never", false},
    Field{"checkpoint_path", &C::checkpoint_path,
          "a checkpoint to start from if model_dir has none", false},
    Field{"log_every_n_steps", &C::log_every_n_steps, "0: never", false},
    Field{"hex_loss", &C::hex_loss, "print every step's loss as a hexadecimal float", false},
};

[[noreturn]] void refuse(const std::string& name, const std::string& value,
                         const std::string& wanted) {
  throw UsageError(fmt::format("--{} {}: {} is wanted", name, value, wanted), ExitCode::kUsage);
}

bool parse_bool(const std::string& name, const std::string& value) {
  for (const char* yes : {"true", "True", "1", "yes", "on", ""})
    if (value == yes) return true;
  for (const char* no : {"false", "False", "0", "no", "off"})
    if (value == no) return false;
  refuse(name, value, "true or false");
}

void check_word(const std::string& name, const std::string& value,
                const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return;
  const std::string close = nearest(value, words);
  refuse(name, value,
         fmt::format("one of {}{}", fmt::join(words, ", "),
                     close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close)));
}

}  // namespace

std::span<const Field> fields() { return kFields; }

void set_field(TrainConfig& config, const std::string& name, const std::string& value) {
  const auto field = std::find_if(kFields.begin(), kFields.end(),
                                  [&](const Field& one) { return name == one.name; });
  if (field == kFields.end()) {
    std::vector<std::string> names;
    for (const Field& one : kFields) names.emplace_back(one.name);
    const std::string close = nearest(name, names);
    throw UsageError(fmt::format("unknown setting '{}'{}", name,
                                 close.empty() ? "" : fmt::format(", did you mean '{}'?", close)));
  }
  if (const auto* text = std::get_if<std::string C::*>(&field->member)) config.** text = value;
  if (const auto* flag = std::get_if<bool C::*>(&field->member))
    config.** flag = parse_bool(name, value);
  if (const auto* whole = std::get_if<uint64_t C::*>(&field->member))
    config.** whole = static_cast<uint64_t>(parse_integer(value, "--" + name, 0, int64_t{1} << 53));
  if (const auto* number = std::get_if<double C::*>(&field->member)) {
    const auto parsed = parse_number(value);
    if (!parsed) refuse(name, value, "a number");
    config.** number = *parsed;
  }
}

std::string get_field(const TrainConfig& config, const Field& field) {
  return std::visit(
      [&](auto member) -> std::string {
        const auto& value = config.*member;
        using T = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>)
          return value;
        else if constexpr (std::is_same_v<T, bool>)
          return value ? "true" : "false";
        else
          return fmt::format("{}", value);
      },
      field.member);
}

nlohmann::json to_json(const TrainConfig& config) {
  nlohmann::json json = nlohmann::json::object();
  for (const Field& field : kFields)
    std::visit([&](auto member) { json[field.name] = config.*member; }, field.member);
  return json;
}

TrainConfig config_from_json(const nlohmann::json& json) {
  TrainConfig config;
  for (const auto& [name, value] : json.items())
    set_field(config, name, value.is_string() ? value.get<std::string>() : value.dump());
  return config;
}

void read_config_file(TrainConfig& config, const std::string& text, const std::string& path) {
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const std::string content(trim(line.substr(0, line.find('#'))));
    if (content.empty()) continue;
    const size_t equals = content.find('=');
    if (equals == std::string::npos)
      throw UsageError(fmt::format("{}, line {}: 'name = value' is wanted", path, number));
    set_field(config, std::string(trim(content.substr(0, equals))),
              std::string(trim(content.substr(equals + 1))));
  }
}

void check_config(const TrainConfig& config, int ranks) {
  check_word("optimizer", config.optimizer, {"sgd", "momentum", "adam", "lars"});
  check_word("dtype", config.dtype, {"f32", "bf16"});
  check_word("reduction", config.reduction, {"fast", "exact"});
  check_word("resume", config.resume, {"auto", "never"});
  check_word("device", config.device, {"auto", "cpu", "cuda"});
  check_word("run_mode", config.run_mode, {"train", "eval", "evaluation"});
  if (config.sync_batch_norm && config.max_corrupt_records > 0)
    throw UsageError(
        "--sync_batch_norm with --max_corrupt_records: a rank whose records are all bad would be "
        "missing; leave one of the two out");
  if (config.sync_batch_norm && config.reduction == "exact")
    throw UsageError(
        "--sync_batch_norm with --reduction exact: exact takes each logical shard's statistics by "
        "themselves and averages them; leave one of the two out");
  check_word("scale_lr", config.scale_lr, {"none", "linear"});
  if (config.nan_policy == "scale")
    throw UsageError(
        "--nan_policy scale: it belongs to the loss scale of fp16, which is not built in yet; "
        "skip-step is the nearest");
  check_word("nan_policy", config.nan_policy, {"abort", "skip-step"});
  check_word("lr_warmup_strategy", config.lr_warmup_strategy, {"linear", "exponential"});
  check_word("distribution_strategy", config.distribution_strategy,
             {"off", "one_device", "mirrored", "multi_worker_mirrored", "horovod"});
  if (config.train_epochs == 0 && config.max_number_of_steps == 0)
    throw UsageError("--train_epochs 0 and --max_number_of_steps 0: nothing to do");
  if (config.backward_passes_per_step == 0)
    throw UsageError("--backward_passes_per_step 0: at least 1 is wanted");
  if (config.reduction == "exact" && config.logical_shards < static_cast<uint64_t>(ranks))
    throw UsageError(fmt::format("--logical_shards {}: {} ranks need at least as many",
                                 config.logical_shards, ranks));
  if (config.reduction == "exact" && config.dtype != "f32")
    throw UsageError("--reduction exact: --dtype f32 is wanted");
  if (config.num_gpus == 0) throw UsageError("--num_gpus 0: at least 1 replica is wanted");
  if (config.num_gpus > 1 && replicas_of(config) == 1)
    throw UsageError(
        fmt::format("--num_gpus {} with --distribution_strategy {}: mirrored or "
                    "multi_worker_mirrored is wanted",
                    config.num_gpus, config.distribution_strategy));
  const uint64_t batch = global_batch(config, ranks);
  if (batch < static_cast<uint64_t>(ranks))
    throw UsageError(
        fmt::format("--batch_size {}: {} replicas have at least a sample each", batch, ranks));
}

uint64_t global_batch(const TrainConfig& config, int ranks) {
  return config.batch_size_per_replica > 0
             ? config.batch_size_per_replica * static_cast<uint64_t>(ranks)
             : config.batch_size;
}

int replicas_of(const TrainConfig& config) {
  const bool several = config.distribution_strategy == "mirrored" ||
                       config.distribution_strategy == "multi_worker_mirrored";
  return several ? static_cast<int>(config.num_gpus) : 1;
}

std::vector<std::string> differences(const TrainConfig& now, const TrainConfig& before) {
  std::vector<std::string> found;
  for (const Field& field : kFields) {
    const std::string is = get_field(now, field);
    const std::string was = get_field(before, field);
    // Threads and devices change the bits, and only exact promises bits.
    const std::string name = field.name;
    const bool counts =
        name == "threads_per_rank" || name == "device" ? now.reduction == "exact" : field.matters;
    if (counts && is != was) found.push_back(fmt::format("{}: {} was {}", field.name, is, was));
  }
  return found;
}

}  // namespace horon::train
