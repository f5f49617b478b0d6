#include "horon/train/run_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "horon/base/error.h"
#include "horon/base/thread.h"
#include "horon/data/pipeline.h"
#include "horon/file/file.h"
#include "horon/runtime/runtime.h"
#include "horon/train/failpoint.h"

namespace horon::train {
namespace {

constexpr uint64_t kSmallestShard = 2;      // batch norm needs two samples
constexpr uint64_t kEvaluationBatch = 256;  // of one rank

int threads_for(const TrainConfig& config, const Topology& topology, int replicas_here) {
  if (config.threads_per_rank > 0) return static_cast<int>(config.threads_per_rank);
  const int mine = static_cast<int>(usable_cores().size());
  const int machine = static_cast<int>(std::thread::hardware_concurrency());
  // Bound to a share of the cores already, or not.
  const int share =
      mine < machine ? mine / replicas_here : machine / std::max(topology.local_size, 1);
  return std::max(share, 1);
}

std::string new_run_folder(const TrainConfig& config) {
  std::string stamp = utc_now();
  std::erase_if(stamp, [](char c) { return c == '-' || c == ':'; });
  std::string folder = fmt::format("runs/{}-{}", stamp, config.model);
  for (int again = 2; file::exists(folder); ++again)
    folder = fmt::format("runs/{}-{}-{}", stamp, config.model, again);
  return folder;
}

// What another run left there: kept, but out of the way.
void set_aside(const std::string& folder) {
  std::vector<std::string> old;
  for (const file::FileInfo& entry : file::list(folder)) {
    const std::string name = file::base_name(entry.path);
    if (name.starts_with("ckpt-") || name == "best" || name == "log.jsonl") old.push_back(name);
  }
  if (old.empty()) return;
  std::string aside = file::join(folder, "before-" + utc_now());
  while (file::exists(aside)) aside += "-again";
  file::make_folder(aside);
  for (const std::string& name : old)
    file::rename(file::join(folder, name), file::join(aside, name));
}

class Run {
 public:
  explicit Run(RankJob job)
      : job_(std::move(job)),
        config_(job_.config),
        rank_(job_.comm->rank()),
        ranks_(job_.comm->size()),
        topology_(job_.comm->topology()),
        runtime_(std::move(job_.comm), runtime_settings()) {
    check_config(config_, ranks_);
    resolve();
    open_data();
    make_parts();
    plan_length();
  }

  TrainResult run() {
    Screen screen(rank_ == 0);
    find_state();
    const Trainee trainee{*replica_, *optimizer_, job_.place};
    Moment moment{config_, rank_, ranks_, runtime_.world(), trainee, state_, screen, total_steps_};
    moment.result.model_dir = config_.model_dir;
    if (!job_.only_evaluates) prepare_folder();
    make_callbacks();
    for (const auto& one : callbacks_) {
      moment.epoch = epoch_of(state_.position);  // the first callback may bring it from rank 0
      one->on_begin(moment);
    }
    screen.say(describe());
    if (job_.only_evaluates) {
      evaluate(moment);
    } else {
      train(moment);
    }
    moment.result.steps = state_.step;
    moment.result.epochs = epoch_of(state_.position);
    if (sync_->mended > 0)
      screen.say(
          fmt::format("{} time(s) a parameter got no gradient; zero was taken", sync_->mended));
    for (const auto& one : callbacks_) one->on_end(moment);
    runtime_.world().barrier(
        {.name = "end of training", .timeout = kNoLimit});  // the last checkpoint is on disk
    return moment.result;
  }

 private:
  // Settings that decide about bits get their values now, so that a checkpoint has them.
  void resolve() {
    batch_ = global_batch(config_, ranks_);
    config_.batch_size = batch_;
    config_.batch_size_per_replica = 0;
    config_.device = job_.place.is_cpu() ? "cpu" : "cuda";
    if (config_.reduction == "exact" && config_.threads_per_rank == 0) config_.threads_per_rank = 1;
  }

  void open_data() {
    const auto open = [&](const std::string& split) {
      const bool own = job_.ingredients != nullptr && job_.ingredients->dataset;
      std::shared_ptr<Dataset> set =
          own ? job_.ingredients->dataset(split) : open_dataset(request(split));
      require(set != nullptr, "input_fn gave no data set for '" + split + "'");
      require(set->size() > 0, "the data set for '" + split + "' is empty");
      return set;
    };
    train_set_ = open("train");
    test_set_ = open(config_.validation_split > 0 ? "validation" : "test");
    const DatasetInfo& info = train_set_->info();
    shape_.image_size = config_.image_size > 0 ? static_cast<int>(config_.image_size)
                        : info.height > 0      ? info.height
                                               : 224;
    shape_.classes = config_.num_classes > 0 ? static_cast<int>(config_.num_classes) : info.classes;
    shape_.channels = info.channels;
    if (shape_.classes < 1) throw UsageError("the data does not say its classes: --num_classes");
    if (shape_.classes < info.classes)
      throw UsageError(
          fmt::format("--num_classes {}: the data has {}", shape_.classes, info.classes));
    recipe_ = config_.preprocessing.empty() ? usual_recipe(info) : config_.preprocessing;
    if (train_set_->size() < kSmallestShard)
      throw UsageError(fmt::format("{} has {} sample(s): batch norm needs at least {}",
                                   config_.dataset, train_set_->size(), kSmallestShard));
    const bool exact = config_.reduction == "exact";
    share_ = {train_set_->size(), batch_, exact ? config_.logical_shards : 0,
              config_.drop_remainder, kSmallestShard};
    check_shares();
  }

  // Ranks that wait for each other inside a model must all have samples.
  void check_shares() const {
    if (!config_.sync_batch_norm || ranks_ == 1) return;
    const uint64_t wanted = kSmallestShard * static_cast<uint64_t>(ranks_);
    if (batch_ < wanted)
      throw UsageError(
          fmt::format("--sync_batch_norm on {} ranks needs a --batch_size of {}", ranks_, wanted));
    const uint64_t rest = train_set_->size() % batch_;
    if (!config_.drop_remainder && rest >= kSmallestShard && rest < wanted)
      throw UsageError(fmt::format(
          "--sync_batch_norm needs {} samples in the last batch of an epoch, {} of {} are left: "
          "--drop_remainder, or another --batch_size",
          wanted, rest, train_set_->size()));
  }

  void make_parts() {
    threads_ = threads_for(config_, topology_, job_.replicas_here);
    Replica::Options options;
    options.threads = threads_;
    options.device = job_.place.device;
    if (job_.ingredients != nullptr) options.model = job_.ingredients->model;
    if (config_.sync_batch_norm && ranks_ > 1) options.norm_over = &runtime_.world();
    replica_.emplace(config_, shape_, options);
    sync_ = config_.reduction == "exact"
                ? make_exact_sync(runtime_, *replica_, config_.logical_shards, job_.place)
                : make_fast_sync(runtime_, *replica_, job_.place);
    const bool own = job_.ingredients != nullptr && job_.ingredients->optimizer;
    optimizer_ = own ? job_.ingredients->optimizer(sync_->slices(), job_.place)
                     : make_optimizer(config_, sync_->slices(), job_.place);
    require(optimizer_ != nullptr, "optimizer_fn gave no optimizer");
  }

  // An evaluation only tells people.
  void make_callbacks() {
    if (job_.only_evaluates) {
      callbacks_.push_back(make_broadcast_state());
      callbacks_.push_back(make_console());
      return;
    }
    Callbacks own;
    if (job_.ingredients != nullptr) {
      for (const CallbackMaker& make : job_.ingredients->callbacks) {
        own.push_back(make(rank_));
        require(own.back() != nullptr, "a callback is missing");
      }
    }
    callbacks_ = standard_callbacks(config_, *schedule_, std::move(own));
  }

  RuntimeOptions runtime_settings() const {
    RuntimeOptions options = runtime_options(Knobs::resolve({}, process_env, ""));
    options.store = job_.store;
    options.stall.store_rank = job_.store_rank;
    return options;
  }

  DatasetRequest request(const std::string& split) const {
    DatasetRequest wanted;
    wanted.name = config_.dataset;
    wanted.folder = config_.data_dir;
    wanted.split = split;
    wanted.validation_split = config_.validation_split;
    if (split != "test") wanted.samples = config_.train_samples;
    wanted.image_size = static_cast<int>(config_.image_size);
    wanted.classes = static_cast<int>(config_.num_classes);
    return wanted;
  }

  void plan_length() {
    const uint64_t steps = steps_in_epoch(share_) / config_.backward_passes_per_step;
    if (steps == 0 && !job_.only_evaluates)
      throw UsageError(
          fmt::format("{} samples in batches of {}, {} a step: there is no whole step in an epoch",
                      share_.samples, batch_, config_.backward_passes_per_step));
    total_steps_ = config_.max_number_of_steps > 0 ? config_.max_number_of_steps
                                                   : steps * config_.train_epochs;
    const double epochs =
        static_cast<double>(total_steps_) / static_cast<double>(std::max<uint64_t>(steps, 1));
    schedule_.emplace(config_, epochs, batch_);
  }

  double epoch_of(const Position& position) const {
    return static_cast<double>(position.epoch) +
           static_cast<double>(position.next) / static_cast<double>(share_.samples);
  }

  std::string describe() const {
    return fmt::format(
        "{} ({} parameters) on {}: {} training samples, {} to test\n"
        "{} rank(s) over {}, {} thread(s) each, on {}; global batch {}, {:.4g} a replica; {} "
        "steps; "
        "{} reduction\n{}",
        config_.model, replica_->parameter_count(), config_.dataset, train_set_->size(),
        test_set_->size(), ranks_, runtime_.world().backend(), threads_, name_of(job_.place.device),
        batch_, static_cast<double>(batch_) / ranks_, total_steps_, config_.reduction,
        state_.step > 0 ? fmt::format("going on after step {}\n", state_.step) : "");
  }

  // Rank 0 looks for a checkpoint; callbacks send it to the others.
  void find_state() {
    std::string failure;
    if (rank_ == 0) {
      try {
        if (const auto found = find_checkpoint()) take(*found);
      } catch (const Error& error) {
        failure = static_cast<char>(error.exit_code()) + std::string(error.what());
      }
    }
    failure = share_text(runtime_.world(), failure);
    if (!failure.empty()) throw Error(failure.substr(1), static_cast<ExitCode>(failure[0]));
    config_.model_dir = share_text(runtime_.world(), config_.model_dir);
  }

  // Restore priority: model_dir, then checkpoint_path, then a fresh start.
  std::optional<Snapshot> find_checkpoint() {
    const auto warn = [](const std::string& line) { fmt::print(stderr, "horon: {}\n", line); };
    if (job_.only_evaluates && !config_.checkpoint_path.empty())
      return CheckpointStore::load(config_.checkpoint_path);
    if (!config_.model_dir.empty() && config_.resume == "auto") {
      if (auto found = CheckpointStore(config_.model_dir).load_newest(warn)) return found;
    }
    if (job_.only_evaluates)
      throw UsageError("nothing to evaluate: --model_dir with a checkpoint, or --checkpoint_path");
    if (config_.model_dir.empty()) config_.model_dir = new_run_folder(config_);
    if (config_.checkpoint_path.empty()) return std::nullopt;
    Snapshot start;  // its weights, and nothing else
    start.config = config_;
    start.model = CheckpointStore::load(config_.checkpoint_path).model;
    return start;
  }

  void take(Snapshot snapshot) {
    const auto changed = differences(config_, snapshot.config);
    if (!changed.empty() && snapshot.step > 0 && !job_.only_evaluates) {
      std::string list;
      for (const std::string& one : changed) list += "\n  " + one;
      throw UsageError(fmt::format("{} was trained with other settings; give them again, or "
                                   "another --model_dir, or --resume never:{}",
                                   config_.model_dir, list),
                       ExitCode::kConfig);
    }
    if (job_.only_evaluates) snapshot.optimizer.clear();  // of whatever optimizer
    restore(snapshot, state_, {*replica_, *optimizer_, job_.place});
  }

  void prepare_folder() {
    if (rank_ != 0) return;
    file::make_folder(config_.model_dir);
    if (config_.resume == "never") set_aside(config_.model_dir);
    file::write(file::join(config_.model_dir, "config.json"), to_json(config_).dump(1) + "\n");
  }

  PipelineOptions pipeline_options(const std::shared_ptr<Dataset>& set, bool training) const {
    PipelineOptions options;
    options.dataset = set;
    options.recipe = find_recipe(recipe_, training, shape_.image_size, shape_.image_size);
    options.form.channels = shape_.channels;
    options.order.seed = config_.seed;
    options.order.shuffles = training;
    options.rank = rank_;
    options.ranks = ranks_;
    options.threads = static_cast<int>(std::max<uint64_t>(config_.input_threads, 1));
    options.max_corrupt_records = config_.max_corrupt_records;
    options.prefetch = 2 + static_cast<int>(config_.backward_passes_per_step);
    options.device = job_.place.runtime;
    options.device_index = job_.place.device.index;
    return options;
  }

  void train(Moment& moment) {
    PipelineOptions options = pipeline_options(train_set_, true);
    options.batch = batch_;
    options.shards = share_.shards;
    options.smallest = kSmallestShard;
    options.drops_remainder = config_.drop_remainder;
    options.start = state_.position;
    Pipeline pipeline(options);
    const Stopwatch watch;
    double seen = 0;
    moment.is_last = state_.step >= total_steps_;
    if (moment.is_last)
      moment.screen.say(fmt::format("step {} of {} was reached before; nothing to do", state_.step,
                                    total_steps_));
    while (!moment.is_last) {
      one_step(pipeline, moment);
      seen += moment.sums.score.count;
      const bool due = moment.ends_epoch && config_.epochs_between_evals > 0 &&
                       state_.position.epoch % config_.epochs_between_evals == 0;
      if ((due || moment.is_last) && !moment.result.interrupted) evaluate(moment);
      for (const auto& one : callbacks_) one->on_boundary(moment);
    }
    if (seen == 0) evaluate(moment);  // nothing was to be trained
    moment.result.seconds = watch.seconds();
    moment.result.images_per_s = seen / std::max(watch.seconds(), 1e-9);
  }

  void one_step(Pipeline& pipeline, Moment& moment) {
    std::vector<Batch> batches;
    std::vector<std::vector<Shard>> passes;
    std::vector<uint64_t> global;
    const uint64_t epoch_before = state_.position.epoch;
    moment.epoch = epoch_of(state_.position);
    for (const auto& one : callbacks_) one->on_step_begin(moment);
    for (uint64_t pass = 0; pass < config_.backward_passes_per_step; ++pass) {
      batches.push_back(*pipeline.next());
      state_.position = batches.back().after;
      global.push_back(batches.back().global_count);
    }
    for (const Batch& batch : batches) passes.push_back(shards_of(batch));
    const bool may_skip = config_.nan_policy == "skip-step" ||
                          (job_.ingredients != nullptr && !job_.ingredients->callbacks.empty());
    const std::vector<float> statistics =
        may_skip ? replica_->read_statistics() : std::vector<float>{};
    moment.sums = sync_->step(passes, global, {job_.stop.stop_requested(), moment.wants_end});
    moment.skips = false;
    for (const auto& one : callbacks_) one->on_gradients(moment);
    if (moment.skips) {  // as if the step had not been
      if (may_skip) replica_->write_statistics(statistics.data());
    } else {
      optimizer_->step(sync_->slices(), moment.rate);
    }
    ++state_.step;
    if (is_flipped(rank_, state_.step) && job_.place.is_cpu())
      replica_->parameters()[0].data[0] *= 2;
    moment.epoch = epoch_of(state_.position);
    moment.ends_epoch = state_.position.epoch != epoch_before;
    moment.result.interrupted = moment.sums.stops > 0;
    moment.is_last =
        state_.step >= total_steps_ || moment.sums.ends > 0 || moment.result.interrupted;
    moment.loss = moment.sums.score.loss / std::max(moment.sums.score.count, 1.0);
    moment.result.train_loss = moment.loss;
    for (const auto& one : callbacks_) one->on_step_end(moment);
  }

  std::vector<Shard> shards_of(const Batch& batch) const {
    std::vector<Shard> shards;
    const uint64_t parts = share_.shards == 0 ? static_cast<uint64_t>(ranks_) : share_.shards;
    uint64_t number = cut(parts, static_cast<uint64_t>(ranks_), static_cast<uint64_t>(rank_)).first;
    const uint64_t each = batch.count() == 0 ? 0 : batch.pixels.count / batch.count();
    if (is_poisoned(rank_, state_.step + 1) && job_.place.is_cpu() && batch.count() > 0)
      static_cast<float*>(batch.pixels.data)[0] = std::numeric_limits<float>::quiet_NaN();
    uint64_t at = 0;
    for (const uint64_t size : batch.shard_sizes) {
      Shard shard;
      shard.number = number++;
      shard.samples.pixels = static_cast<const float*>(batch.pixels.data) + at * each;
      shard.samples.labels = std::span(batch.labels).subspan(at, size);
      shard.samples.numbers = std::span(batch.samples).subspan(at, size);
      shard.samples.step = state_.step;
      shards.push_back(shard);
      at += size;
    }
    return shards;
  }

  void evaluate(Moment& moment) {
    PipelineOptions options = pipeline_options(test_set_, false);
    options.batch =
        std::min<uint64_t>(test_set_->size(), kEvaluationBatch * static_cast<uint64_t>(ranks_));
    options.epochs = 1;
    options.prefetch = 2;
    Pipeline pipeline(options);
    std::array<double, 4> sums = {};
    while (const auto batch = pipeline.next()) {
      if (batch->count() == 0) continue;
      const Score score = replica_->evaluate({static_cast<const float*>(batch->pixels.data),
                                              batch->labels, batch->samples, state_.step});
      sums[0] += score.loss;
      sums[1] += score.top1;
      sums[2] += score.top5;
      sums[3] += score.count;
    }
    runtime_.world().all_reduce(view_of(sums), {.name = "evaluation", .timeout = kNoLimit});
    const double count = std::max(sums[3], 1.0);
    moment.result.test_loss = sums[0] / count;
    moment.result.test_top1 = sums[1] / count;
    moment.result.test_top5 = sums[2] / count;
    moment.result.test_samples = static_cast<uint64_t>(sums[3]);
    for (const auto& one : callbacks_) one->on_evaluated(moment);
  }

  RankJob job_;
  TrainConfig config_;
  int rank_;
  int ranks_;
  Topology topology_;
  Runtime runtime_;
  uint64_t batch_ = 0;
  std::shared_ptr<Dataset> train_set_;
  std::shared_ptr<Dataset> test_set_;
  ModelShape shape_;
  std::string recipe_;
  int threads_ = 1;
  std::optional<Replica> replica_;
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<Schedule> schedule_;
  ShareOptions share_;
  uint64_t total_steps_ = 0;
  RunState state_;
  Callbacks callbacks_;
};

}  // namespace

TrainResult run_rank(RankJob job) { return Run(std::move(job)).run(); }

}  // namespace horon::train
