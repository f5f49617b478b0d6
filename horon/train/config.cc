#include "horon/train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/optim/optimizer_table.h"

namespace horon::train {
namespace {

using C = TrainConfig;

// The words of each kind, its own first: the one place where words become values.
template <typename E>
struct Word {
  std::string_view text;
  E value;
};
constexpr auto words_of(RunMode) {
  using enum RunMode;
  return std::array{Word{"train", kTrain}, Word{"eval", kEvaluate}, Word{"evaluation", kEvaluate}};
}
constexpr auto words_of(WarmUp) {
  return std::array{Word{"linear", WarmUp::kLinear}, Word{"exponential", WarmUp::kExponential}};
}
constexpr auto words_of(RateScale) {
  return std::array{Word{"none", RateScale::kNone}, Word{"linear", RateScale::kLinear}};
}
constexpr auto words_of(OptimizerKind) {
  std::array<Word<OptimizerKind>, std::tuple_size_v<decltype(optim::kOptimizers)>> words = {};
  size_t at = 0;
  optim::for_each_optimizer([&](const auto& row, OptimizerKind kind) {
    words[at++] = {row.word, kind};
  });
  return words;
}
constexpr auto words_of(DType) {
  using enum DType;
  return std::array{Word{"f32", kF32}, Word{"bf16", kBF16}, Word{"fp32", kF32},
                    Word{"float32", kF32}, Word{"bfloat16", kBF16}};
}
constexpr auto words_of(Strategy) {
  using enum Strategy;
  return std::array{Word{"", kDefault},
                    Word{"off", kOff},
                    Word{"one_device", kOneDevice},
                    Word{"mirrored", kMirrored},
                    Word{"multi_worker_mirrored", kMultiWorkerMirrored},
                    Word{"horovod", kHorovod},
                    Word{"default", kDefault}};
}
constexpr auto words_of(DeviceChoice) {
  using enum DeviceChoice;
  return std::array{Word{"auto", kAuto}, Word{"cpu", kCpu}, Word{"cuda", kCuda}};
}
constexpr auto words_of(Reduction) {
  return std::array{Word{"fast", Reduction::kFast}, Word{"exact", Reduction::kExact}};
}
constexpr auto words_of(NanPolicy) {
  return std::array{Word{"abort", NanPolicy::kAbort}, Word{"skip-step", NanPolicy::kSkipStep}};
}
constexpr auto words_of(ResumeMode) {
  return std::array{Word{"auto", ResumeMode::kAuto}, Word{"never", ResumeMode::kNever}};
}

void read(const std::string& text, std::string& value) { value = text; }
void read(const std::string& text, uint64_t& value) {
  value = static_cast<uint64_t>(parse_whole(text));
}
void read(const std::string& text, double& value) { value = parse_finite(text); }
void read(const std::string& text, bool& value) { value = parse_switch(text); }
template <typename E>
requires std::is_enum_v<E>
void read(const std::string& text, E& value) {
  for (const auto& word : words_of(E{})) {
    if (word.text != text) continue;
    value = word.value;
    return;
  }
  throw UsageError(fmt::format("'{}' is not an allowed value",
                               text));  // cannot happen: the table is checked first
}

template <typename T>
std::string write(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    for (const auto& word : words_of(T{}))
      if (word.value == value) return std::string(word.text);
    return fmt::format("value {}", static_cast<int>(value));  // set by a C++ program; not allowed
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else {
    return fmt::format("{}", value);
  }
}

template <typename T>
nlohmann::json to_value(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return write(value);
  } else {
    return value;
  }
}

// Where a setting lies in TrainConfig.
struct Member {
  std::string_view name;
  void (*read)(C&, const std::string&);
  std::string (*write)(const C&);
  nlohmann::json (*json)(const C&);
};

template <auto member>
constexpr Member bind(std::string_view name) {
  return {name, [](C& config, const std::string& text) { train::read(text, config.*member); },
          [](const C& config) { return train::write(config.*member); },
          [](const C& config) { return to_value(config.*member); }};
}

constexpr std::array kMembers = {
    bind<&C::run_mode>("run_mode"),
    bind<&C::model>("model"),
    bind<&C::dataset>("dataset"),
    bind<&C::data_dir>("data_dir"),
    bind<&C::model_dir>("model_dir"),
    bind<&C::preprocessing>("preprocessing"),
    bind<&C::image_size>("image_size"),
    bind<&C::num_classes>("num_classes"),
    bind<&C::train_samples>("train_samples"),
    bind<&C::batch_size>("batch_size"),
    bind<&C::batch_size_per_replica>("batch_size_per_replica"),
    bind<&C::train_epochs>("train_epochs"),
    bind<&C::max_number_of_steps>("max_number_of_steps"),
    bind<&C::learning_rate>("learning_rate"),
    bind<&C::learning_rate_strategy>("learning_rate_strategy"),
    bind<&C::lr_warmup_strategy>("lr_warmup_strategy"),
    bind<&C::lr_warmup_epochs>("lr_warmup_epochs"),
    bind<&C::lr_warmup_start>("lr_warmup_start"),
    bind<&C::lr_power>("lr_power"),
    bind<&C::lr_end>("lr_end"),
    bind<&C::scale_lr>("scale_lr"),
    bind<&C::lr_base_batch>("lr_base_batch"),
    bind<&C::optimizer>("optimizer"),
    bind<&C::momentum>("momentum"),
    bind<&C::nesterov>("nesterov"),
    bind<&C::weight_decay>("weight_decay"),
    bind<&C::label_smoothing>("label_smoothing"),
    bind<&C::dtype>("dtype"),
    bind<&C::distribution_strategy>("distribution_strategy"),
    bind<&C::num_gpus>("num_gpus"),
    bind<&C::device>("device"),
    bind<&C::sync_batch_norm>("sync_batch_norm"),
    bind<&C::seed>("seed"),
    bind<&C::reduction>("reduction"),
    bind<&C::logical_shards>("logical_shards"),
    bind<&C::threads_per_rank>("threads_per_rank"),
    bind<&C::input_threads>("input_threads"),
    bind<&C::validation_split>("validation_split"),
    bind<&C::backward_passes_per_step>("backward_passes_per_step"),
    bind<&C::drop_remainder>("drop_remainder"),
    bind<&C::max_corrupt_records>("max_corrupt_records"),
    bind<&C::nan_policy>("nan_policy"),
    bind<&C::epochs_between_evals>("epochs_between_evals"),
    bind<&C::skip_eval>("skip_eval"),
    bind<&C::save_checkpoints_steps>("save_checkpoints_steps"),
    bind<&C::save_checkpoints_secs>("save_checkpoints_secs"),
    bind<&C::save_checkpoints_epochs>("save_checkpoints_epochs"),
    bind<&C::keep_checkpoint_max>("keep_checkpoint_max"),
    bind<&C::keep_best>("keep_best"),
    bind<&C::resume>("resume"),
    bind<&C::checkpoint_path>("checkpoint_path"),
    bind<&C::log_every_n_steps>("log_every_n_steps"),
    bind<&C::hex_loss>("hex_loss"),
};

const Member& member_of(std::string_view name) {
  for (const Member& member : kMembers)
    if (member.name == name) return member;
  throw UsageError(fmt::format("'{}' is a setting of the job, not of the trainer", name));
}

}  // namespace

void set_field(TrainConfig& config, std::string_view name, std::string_view value,
               std::string_view where) {
  const std::string at = where.empty() ? fmt::format("--{}", name) : std::string(where);
  const ReadSetting said = read_setting(name, value, at);
  member_of(said.setting.name).read(config, said.value);
}

std::string get_field(const TrainConfig& config, std::string_view name) {
  return member_of(name).write(config);
}

nlohmann::json to_json(const TrainConfig& config) {
  nlohmann::json json = nlohmann::json::object();
  for (const Member& member : kMembers) json[std::string(member.name)] = member.json(config);
  return json;
}

TrainConfig config_from_json(const nlohmann::json& json) {
  TrainConfig config;
  for (const auto& [name, value] : json.items()) {
    if (value.is_object()) continue;  // derived from the data, for users
    set_field(config, name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return config;
}

void check_config(const TrainConfig& config, int ranks) {
  for (const Member& member : kMembers) {
    const Setting& setting = *look_up_setting(member.name);
    check_setting(setting, member.write(config), setting_flag(setting));
  }
  if (config.sync_batch_norm && config.max_corrupt_records > 0)
    throw UsageError(
        "--sync_batch_norm with --max_corrupt_records: a rank whose records are all bad would be "
        "missing; leave one of the two out");
  const bool exact = config.reduction == Reduction::kExact;
  if (config.sync_batch_norm && exact)
    throw UsageError(
        "--sync_batch_norm with --reduction exact: exact takes each logical shard's statistics by "
        "themselves and averages them; leave one of the two out");
  if (config.train_epochs == 0 && config.max_number_of_steps == 0)
    throw UsageError("--train_epochs 0 and --max_number_of_steps 0: nothing to do");
  if (exact && config.logical_shards < static_cast<uint64_t>(ranks))
    throw UsageError(fmt::format("--logical_shards {}: {} ranks need at least as many",
                                 config.logical_shards, ranks));
  if (exact && config.dtype != DType::kF32)
    throw UsageError("--reduction exact requires --dtype f32");
  if (config.num_gpus > 1 && replicas_of(config) == 1)
    throw UsageError(fmt::format(
        "--num_gpus {} with --distribution_strategy {}: use mirrored or multi_worker_mirrored",
        config.num_gpus, get_field(config, "distribution_strategy")));
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
  switch (config.distribution_strategy) {
    case Strategy::kDefault:
    case Strategy::kMirrored:
    case Strategy::kMultiWorkerMirrored:
      return static_cast<int>(config.num_gpus);
    case Strategy::kOff:
    case Strategy::kOneDevice:
    case Strategy::kHorovod:
      break;
  }
  return 1;
}

std::vector<std::string> differences(const TrainConfig& now, const TrainConfig& before) {
  const bool exact = now.reduction == Reduction::kExact && before.reduction == Reduction::kExact;
  std::vector<std::string> found;
  for (const Member& member : kMembers) {
    const Setting& setting = *look_up_setting(member.name);
    const std::string is = member.write(now);
    const std::string was = member.write(before);
    const bool counts = setting.on_resume == OnResume::kMustBeEqual ||
                        (setting.on_resume == OnResume::kEqualForBits && exact) ||
                        (setting.on_resume == OnResume::kEqualIfKnown && was != setting.fallback);
    if (counts && is != was) found.push_back(fmt::format("{}: {} was {}", member.name, is, was));
  }
  return found;
}

}  // namespace horon::train
