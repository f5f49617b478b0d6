#include "horon/train/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/text.h"

namespace horon::train {
namespace {

using C = TrainConfig;
using Words = std::vector<std::string>;
constexpr auto kFree = Field::kFree;
constexpr auto kMatters = Field::kMatters;
constexpr auto kOwn = Field::kOwn;
constexpr double kMany = 1e15;  // samples, steps
constexpr double kMostThreads = 1024;
const Words kStrategies = {"", "off", "one_device", "mirrored", "multi_worker_mirrored", "horovod"};

// name, member, help, scope, lowest, highest, words
const std::array kFields = {
    Field{"run_mode", &C::run_mode, "train, or eval: as `horon evaluate`", kFree, 0, 0,
          Words{"train", "eval", "evaluation"}},
    Field{"model", &C::model,
          "resnet_tiny, resnet_v1_18/20/50/56/110, resnet_v1_50_slim, lenet, workshop_cnn",
          kMatters},
    Field{"dataset", &C::dataset, "see `horon data stats --help`", kMatters},
    Field{"data_dir", &C::data_dir, "where its files are", kOwn},
    Field{"model_dir", &C::model_dir,
          "folder for checkpoints and logs; default: a new one below ./runs", kOwn},
    Field{"preprocessing", &C::preprocessing, "default: the usual one of such pictures", kMatters},
    Field{"image_size", &C::image_size,
          "0: that of the pictures where all are alike and small, or 224", kMatters, 0, 8192},
    Field{"num_classes", &C::num_classes, "0: the data set's", kMatters, 0, 1e8},
    Field{"train_samples", &C::train_samples, "of shapes10 and synthetic; 0: their default",
          kMatters, 0, 1e12},
    Field{"batch_size", &C::batch_size,
          "GLOBAL batch: samples of one step on all replicas together", kMatters, 1, 1e9},
    Field{"batch_size_per_replica", &C::batch_size_per_replica,
          "the same, of one replica, instead of batch_size", kFree, 0, 1e9},
    Field{"train_epochs", &C::train_epochs, "passes over the data", kFree, 0, 1e9},
    Field{"max_number_of_steps", &C::max_number_of_steps,
          "optimizer steps, instead of train_epochs; 0: as train_epochs says", kFree, 0, kMany},
    Field{"learning_rate", &C::learning_rate, "of the global batch, as it is", kMatters},
    Field{
        "learning_rate_strategy", &C::learning_rate_strategy,
        "stages by epoch (5:0.001->0.4,30:0.4,60:0.04), cosine, polynomial; default: constant (of "
        "resnet_tiny, if nothing is said of rates: polynomial after a fifth for warm-up)",
        kMatters},
    Field{"lr_warmup_strategy", &C::lr_warmup_strategy,
          "linear or exponential; exponential also bends the first stage a->b", kMatters, 0, 0,
          Words{"linear", "exponential"}},
    Field{"lr_warmup_epochs", &C::lr_warmup_epochs, "of constant, cosine and polynomial", kMatters,
          0, 1e9},
    Field{"lr_warmup_start", &C::lr_warmup_start,
          "the rate where that warm-up begins; 0 with exponential: a hundredth of the rate",
          kMatters},
    Field{"lr_power", &C::lr_power, "of polynomial", kMatters, 0, 1000},
    Field{"lr_end", &C::lr_end, "of cosine and polynomial", kMatters},
    Field{"scale_lr", &C::scale_lr,
          "none, or linear: times global batch / lr_base_batch; never by ranks", kMatters, 0, 0,
          Words{"none", "linear"}},
    Field{"lr_base_batch", &C::lr_base_batch, "for scale_lr", kMatters, 1, 1e9},
    Field{"optimizer", &C::optimizer, "sgd, momentum, adam, lars", kMatters, 0, 0,
          Words{"sgd", "momentum", "adam", "lars"}},
    Field{"momentum", &C::momentum, "of momentum and lars", kMatters, 0, 0.9999},
    Field{"nesterov", &C::nesterov, "of momentum", kMatters},
    Field{"weight_decay", &C::weight_decay,
          "on weights of convolutions and layers, not on BN and biases", kMatters},
    Field{"label_smoothing", &C::label_smoothing, "0 to 1", kMatters, 0, 1},
    Field{"dtype", &C::dtype, "f32, or bf16 (weights stay f32)", kMatters, 0, 0,
          Words{"f32", "bf16"}},
    Field{
        "distribution_strategy", &C::distribution_strategy,
        "off, one_device, mirrored, multi_worker_mirrored, horovod; default: mirrored if num_gpus "
        "is above 1, else off",
        kFree, 0, 0, kStrategies},
    Field{"num_gpus", &C::num_gpus,
          "replicas inside a process, one a GPU (or all on the CPU where there is none)", kFree, 1,
          1024},
    Field{"device", &C::device, "cpu, cuda, or auto: a GPU if LibTorch can use one", kOwn, 0, 0,
          Words{"auto", "cpu", "cuda"}},
    Field{"sync_batch_norm", &C::sync_batch_norm,
          "batch norm takes its statistics over the samples of all ranks", kMatters},
    Field{"seed", &C::seed, "of weights, order and augmentation", kMatters},
    Field{"reduction", &C::reduction, "fast, or exact: the same bits on any number of ranks",
          kMatters, 0, 0, Words{"fast", "exact"}},
    Field{"logical_shards", &C::logical_shards,
          "of exact: parts of a batch; at least the number of ranks", kMatters, 1, 4096},
    Field{"threads_per_rank", &C::threads_per_rank, "0: cores / ranks; with exact: 1", kMatters, 0,
          kMostThreads},
    Field{"input_threads", &C::input_threads, "that make batches", kOwn, 1, kMostThreads},
    Field{"validation_split", &C::validation_split,
          "samples cut from the training set, to evaluate along the way; the test set is scored at "
          "the end",
          kMatters, 0, 1e12},
    Field{"backward_passes_per_step", &C::backward_passes_per_step,
          "batches whose gradients are averaged before a step", kMatters, 1, 1e6},
    Field{"drop_remainder", &C::drop_remainder, "leave out the last, short batch of an epoch",
          kMatters},
    Field{"max_corrupt_records", &C::max_corrupt_records,
          "bad records of a rank that are passed over", kFree},
    Field{"nan_policy", &C::nan_policy, "abort, or skip-step, when a gradient is not finite", kFree,
          0, 0, Words{"abort", "skip-step"}},
    Field{"epochs_between_evals", &C::epochs_between_evals, "0: only at the end", kFree},
    Field{"skip_eval", &C::skip_eval,
          "evaluate nothing; neither test nor validation data is opened", kFree},
    Field{"save_checkpoints_steps", &C::save_checkpoints_steps, "0: not by steps", kFree},
    Field{"save_checkpoints_secs", &C::save_checkpoints_secs, "0: not by time", kFree},
    Field{"save_checkpoints_epochs", &C::save_checkpoints_epochs, "0: not by epochs", kFree},
    Field{"keep_checkpoint_max", &C::keep_checkpoint_max, "older ones are removed; 0: all stay",
          kFree},
    Field{"keep_best", &C::keep_best,
          "the weights of the best accuracy (validation's, where there is such data) in "
          "model_dir/best",
          kFree},
    Field{"resume", &C::resume, "auto: from the newest good checkpoint in model_dir; never", kFree,
          0, 0, Words{"auto", "never"}},
    Field{"checkpoint_path", &C::checkpoint_path,
          "a checkpoint to start from if model_dir has none", kOwn},
    Field{"log_every_n_steps", &C::log_every_n_steps, "0: never", kOwn},
    Field{"hex_loss", &C::hex_loss, "print every step's loss as a hexadecimal float", kOwn},
};

[[noreturn]] void refuse(const std::string& name, const std::string& value,
                         const std::string& wanted) {
  throw UsageError(fmt::format("--{} {}: {} is wanted", name, value, wanted), ExitCode::kUsage);
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool parse_bool(const std::string& name, const std::string& value) {
  const std::string word = lower(value);
  for (const char* yes : {"true", "1", "yes", "on", ""})
    if (word == yes) return true;
  for (const char* no : {"false", "0", "no", "off"})
    if (word == no) return false;
  refuse(name, value, "true or false");
}

// Names of the same thing in other programs.
std::string own_word(const std::string& name, const std::string& word) {
  static const std::map<std::string, std::string> kDtypes = {
      {"fp32", "f32"}, {"float32", "f32"}, {"bfloat16", "bf16"}};
  if (name == "dtype" && kDtypes.contains(word)) return kDtypes.at(word);
  if (name == "distribution_strategy" && word == "default") return "";
  return word;
}

// Of other programs, and not there.
void refuse_foreign(const std::string& name, const std::string& word) {
  if (name == "distribution_strategy" && (word == "parameter_server" || word == "tpu"))
    throw UsageError(fmt::format(
        "--{} {}: not built in yet; multi_worker_mirrored trains on many hosts", name, word));
  if (name == "nan_policy" && word == "scale")
    throw UsageError(
        "--nan_policy scale: it belongs to the loss scale of fp16, which is not built in yet; "
        "skip-step is the nearest");
}

void check_word(const std::string& name, const std::string& value, const Words& words) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return;
  refuse_foreign(name, value);
  const std::string close = nearest(value, words);
  Words shown = words;
  std::erase(shown, "");
  refuse(name, value,
         fmt::format("one of {}{}", fmt::join(shown, ", "),
                     close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close)));
}

void check_range(const Field& field, const std::string& shown, double value) {
  if (value >= field.low && value <= field.high) return;  // not for a NaN
  const bool open = field.high >= std::numeric_limits<double>::max();
  refuse(field.name, shown,
         open ? fmt::format("a number of at least {:g}", field.low)
              : fmt::format("a number from {:g} to {:.6g}", field.low, field.high));
}

void check_field(const TrainConfig& config, const Field& field) {
  const std::string shown = get_field(config, field);
  if (const auto* text = std::get_if<std::string C::*>(&field.member); text && !field.words.empty())
    check_word(field.name, config.**text, field.words);
  if (const auto* whole = std::get_if<uint64_t C::*>(&field.member))
    check_range(field, shown, static_cast<double>(config.**whole));
  if (const auto* number = std::get_if<double C::*>(&field.member))
    check_range(field, shown, config.**number);
}

}  // namespace

std::span<const Field> fields() { return kFields; }

const Field* find_field(const std::string& name) {
  const auto field = std::find_if(kFields.begin(), kFields.end(),
                                  [&](const Field& one) { return name == one.name; });
  return field == kFields.end() ? nullptr : &*field;
}

void set_field(TrainConfig& config, const std::string& name, const std::string& value) {
  const Field* field = find_field(name);
  if (field == nullptr) {
    Words names;
    for (const Field& one : kFields) names.emplace_back(one.name);
    const std::string close = nearest(name, names);
    throw UsageError(fmt::format("unknown setting '{}'{}", name,
                                 close.empty() ? "" : fmt::format(", did you mean '{}'?", close)));
  }
  if (const auto* text = std::get_if<std::string C::*>(&field->member)) {
    const bool is_word = !field->words.empty() || name == "learning_rate_strategy";
    config.** text = is_word ? own_word(name, lower(value)) : value;
  }
  if (const auto* flag = std::get_if<bool C::*>(&field->member))
    config.** flag = parse_bool(name, value);
  if (const auto* whole = std::get_if<uint64_t C::*>(&field->member))
    config.** whole = static_cast<uint64_t>(parse_integer(value, "--" + name, 0, int64_t{1} << 53));
  if (const auto* number = std::get_if<double C::*>(&field->member)) {
    const auto parsed = parse_number(value);
    if (!parsed || !std::isfinite(*parsed)) refuse(name, value, "a number");
    config.** number = *parsed;
  }
  check_field(config, *field);
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
  for (const auto& [name, value] : json.items()) {
    if (value.is_object()) continue;  // what was found out, for people
    set_field(config, name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return config;
}

void check_config(const TrainConfig& config, int ranks) {
  for (const Field& field : kFields) check_field(config, field);
  if (config.sync_batch_norm && config.max_corrupt_records > 0)
    throw UsageError(
        "--sync_batch_norm with --max_corrupt_records: a rank whose records are all bad would be "
        "missing; leave one of the two out");
  if (config.sync_batch_norm && config.reduction == "exact")
    throw UsageError(
        "--sync_batch_norm with --reduction exact: exact takes each logical shard's statistics by "
        "themselves and averages them; leave one of the two out");
  if (config.train_epochs == 0 && config.max_number_of_steps == 0)
    throw UsageError("--train_epochs 0 and --max_number_of_steps 0: nothing to do");
  if (config.reduction == "exact" && config.logical_shards < static_cast<uint64_t>(ranks))
    throw UsageError(fmt::format("--logical_shards {}: {} ranks need at least as many",
                                 config.logical_shards, ranks));
  if (config.reduction == "exact" && config.dtype != "f32")
    throw UsageError("--reduction exact: --dtype f32 is wanted");
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

bool has_stages(const TrainConfig& config) {
  const std::string& strategy = config.learning_rate_strategy;
  return !strategy.empty() && strategy != "cosine" && strategy != "polynomial";
}

int replicas_of(const TrainConfig& config) {
  const bool several = config.distribution_strategy.empty() ||
                       config.distribution_strategy == "mirrored" ||
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
    const bool counts = name == "threads_per_rank" || name == "device"
                            ? now.reduction == "exact" && before.reduction == "exact"
                            : field.scope == Field::kMatters;
    // Runs of old did not write down what they found out.
    const bool was_open = (name == "image_size" && before.image_size == 0) ||
                          (name == "num_classes" && before.num_classes == 0) ||
                          (name == "preprocessing" && before.preprocessing.empty());
    if (counts && is != was && !was_open)
      found.push_back(fmt::format("{}: {} was {}", field.name, is, was));
  }
  return found;
}

}  // namespace horon::train
