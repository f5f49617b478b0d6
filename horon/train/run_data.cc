#include "horon/train/run_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "horon/base/error.h"
#include "horon/data/image/augment.h"
#include "horon/data/open_dataset.h"
#include "horon/data/survey.h"

namespace horon::train {
namespace {

std::shared_ptr<Dataset> open_split(const TrainConfig& config, const DatasetMaker& own,
                                    const std::string& split) {
  if (own) return own(split);
  DatasetRequest wanted;
  wanted.name = config.dataset;
  wanted.folder = config.data_dir;
  wanted.split = split;
  wanted.validation_split = config.validation_split;
  if (split != "test") wanted.samples = config.train_samples;
  wanted.image_size = static_cast<int>(config.image_size);
  wanted.classes = static_cast<int>(config.num_classes);
  return open_dataset(wanted);
}

// Null if there is none.
std::shared_ptr<Dataset> open_if_there(const TrainConfig& config, const DatasetMaker& own,
                                       const std::string& split) {
  try {
    auto set = open_split(config, own, split);
    return set && set->size() > 0 ? set : nullptr;
  } catch (const NoSuchSplit&) {
    return nullptr;
  }
}

// TFRecords of ImageNet have their test set under the name of a validation set.
bool is_same(const Dataset& a, const Dataset& b) {
  return a.size() == b.size() && a.where(0) == b.where(0);
}

void open_measures(const TrainConfig& config, const DatasetMaker& own, RunData& data) {
  if (config.skip_eval) return;
  // A program's own function is called for a validation set only if the settings request one.
  if (!own || config.validation_split > 0)
    data.validation = open_if_there(config, own, "validation");
  data.test = open_if_there(config, own, "test");
  if (data.validation && data.test && is_same(*data.validation, *data.test))
    data.validation = nullptr;
}

void choose_form(TrainConfig& config, const Dataset& set, RunData& data) {
  const bool says_all =
      config.image_size > 0 && !config.preprocessing.empty();  // then images need not be inspected
  const DatasetInfo info = says_all ? set.info() : info_with_size(set);
  if (config.image_size == 0) config.image_size = static_cast<uint64_t>(usual_side(info));
  if (config.num_classes == 0)
    config.num_classes = static_cast<uint64_t>(std::max(info.classes, 0));
  if (config.preprocessing.empty()) config.preprocessing = usual_recipe(info);
  data.shape.image_size = static_cast<int>(config.image_size);
  data.shape.classes = static_cast<int>(config.num_classes);
  data.shape.channels = info.channels;
  data.recipe = config.preprocessing;
  if (data.shape.classes < 1) throw UsageError("the data does not say its classes: --num_classes");
  if (data.shape.classes < info.classes)
    throw UsageError(
        fmt::format("--num_classes {}: the data has {}", data.shape.classes, info.classes));
}

}  // namespace

RunData open_data(TrainConfig& config, const DatasetMaker& own, bool only_evaluates) {
  RunData data;
  open_measures(config, own, data);
  if (only_evaluates && !data.watched()) {
    open_split(config, own, "test");  // throws an error that names what is missing
    throw UsageError(fmt::format("{} in '{}': there is neither test nor validation data",
                                 config.dataset, config.data_dir));
  }
  const bool needs_train = !only_evaluates || config.num_classes == 0 || config.image_size == 0;
  if (needs_train) {
    data.train = open_split(config, own, "train");
    require(data.train != nullptr, "input_fn gave no data set for 'train'");
    require(data.train->size() > 0, "the data set for 'train' is empty");
  }
  const Dataset& described = data.train ? *data.train : *data.watched();
  choose_form(config, described, data);
  if (own && config.dataset == TrainConfig{}.dataset)  // the program's own name is kept
    config.dataset = described.info().name.empty() ? "own" : described.info().name;
  return data;
}

std::string describe_data(const RunData& data) {
  const auto samples_of = [](const std::shared_ptr<Dataset>& set, const char* what) {
    return set ? fmt::format(", {} {}", set->size(), what) : "";
  };
  return fmt::format("{}{}{}\nimages {}x{}, {} classes, recipe '{}'{}",
                     data.train ? fmt::format("{} training samples", data.train->size())
                                : std::string("no training data is needed"),
                     samples_of(data.validation, "to validate"), samples_of(data.test, "to test"),
                     data.shape.image_size, data.shape.image_size, data.shape.classes, data.recipe,
                     data.watched()
                         ? ""
                         : "\nno test: there is no test or validation data, or --skip_eval is set");
}

void check_batch_parts(const TrainConfig& config, uint64_t samples, uint64_t batch, int ranks) {
  if (!config.sync_batch_norm || ranks == 1) return;
  const uint64_t wanted = kSmallestShard * static_cast<uint64_t>(ranks);
  if (batch < wanted)
    throw UsageError(
        fmt::format("--sync_batch_norm on {} ranks needs a --batch_size of {}", ranks, wanted));
  const uint64_t rest = samples % batch;
  if (!config.drop_remainder && rest >= kSmallestShard && rest < wanted)
    throw UsageError(fmt::format(
        "--sync_batch_norm needs {} samples in the last batch of an epoch, {} of {} are left: "
        "--drop_remainder, or another --batch_size",
        wanted, rest, samples));
}

void compare_data(Communicator& world, const RunData& data) {
  constexpr std::array kNames = {"training", "validation", "test"};
  std::vector<int64_t> mine;
  for (const auto* set : {&data.train, &data.validation, &data.test}) {
    mine.push_back(*set ? static_cast<int64_t>((*set)->size()) : 0);
    mine.push_back(*set ? static_cast<int64_t>(index_digest(**set)) : 0);
  }
  const Gathered all = world.all_gather(view_of(mine), {.name = "data", .timeout = kNoLimit});
  const auto numbers = all.data.as<int64_t>();
  for (size_t set = 0; set < kNames.size(); ++set) {
    std::vector<std::string> others;
    for (size_t rank = 1; rank < static_cast<size_t>(world.size()); ++rank) {
      const size_t at = rank * mine.size() + 2 * set;
      if (numbers[at] != numbers[2 * set])
        others.push_back(fmt::format("{} samples on rank {}", numbers[at], rank));
      else if (numbers[at + 1] != numbers[2 * set + 1])
        others.push_back(fmt::format("as many on rank {}, in other files or classes", rank));
    }
    if (!others.empty())
      throw UsageError(fmt::format("the ranks have different {} data: {} samples on rank 0, {}",
                                   kNames[set], numbers[2 * set], fmt::join(others, ", ")),
                       ExitCode::kMismatch);
  }
}

void sum_up_input(Communicator& world, const std::map<std::string, Pipeline::Report>& by_split,
                  bool may_be_corrupt, TrainResult& result) {
  for (const auto& [split, report] : by_split) {
    const Pipeline::Memory& memory = report.memory;
    result.input_bytes =
        std::max(result.input_bytes, memory.peak + memory.threads + memory.dataset);
    if (!may_be_corrupt) continue;
    std::vector<int64_t> mine(report.corrupt_samples.begin(), report.corrupt_samples.end());
    const Gathered all =
        world.all_gather(view_of(mine), {.name = "corrupt records", .timeout = kNoLimit});
    const auto numbers = all.data.as<int64_t>();
    result.corrupt_records +=
        report.lost + std::set<int64_t>(numbers.begin(), numbers.end()).size();
    std::string reason = report.reasons.empty() ? "" : report.reasons.front() + "\n";
    const Gathered reasons =
        world.all_gather(BufferView{reason.data(), reason.size(), DType::kU8, {}},
                         {.name = "reasons", .timeout = kNoLimit});
    const auto text = reasons.data.as<uint8_t>();
    if (result.corrupt_reason.empty())
      result.corrupt_reason.assign(text.begin(), std::find(text.begin(), text.end(), '\n'));
  }
}

}  // namespace horon::train
