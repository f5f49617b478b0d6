#include "horon/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "horon/base/crc32c.h"
#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"
#include "horon/data/pipeline.h"
#include "horon/file/file.h"
#include "horon/runtime/runtime.h"
#include "horon/train/gradient_sync.h"
#include "horon/train/reporter.h"
#include "horon/train/run_state.h"
#include "horon/train/schedule.h"

namespace horon::train {
namespace {

constexpr uint64_t kSmallestShard = 2;  // batch norm needs two samples
constexpr uint64_t kDivergenceSteps = 100;
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
    train_set_ = open_dataset(request("train"));
    const std::string held_out = config_.validation_split > 0 ? "validation" : "test";
    test_set_ = open_dataset(request(held_out));
    const DatasetInfo& info = train_set_->info();
    shape_.image_size = config_.image_size > 0 ? static_cast<int>(config_.image_size)
                        : info.height > 0      ? info.height
                                               : 224;
    shape_.classes = config_.num_classes > 0 ? static_cast<int>(config_.num_classes) : info.classes;
    shape_.channels = info.channels;
    recipe_ = config_.preprocessing.empty() ? usual_recipe(info) : config_.preprocessing;
    threads_ = threads_for(config_, topology_, job_.replicas_here);
    replica_.emplace(config_, shape_, threads_);
    sync_ = config_.reduction == "exact"
                ? make_exact_sync(runtime_, *replica_, config_.logical_shards)
                : make_fast_sync(runtime_, *replica_);
    optimizer_ = make_optimizer(config_, sync_->slices());
    share_ = {train_set_->size(), batch_, config_.reduction == "exact" ? config_.logical_shards : 0,
              config_.drop_remainder, kSmallestShard};
    if (train_set_->size() < kSmallestShard)
      throw UsageError(fmt::format("{} has {} sample(s): batch norm needs at least {}",
                                   config_.dataset, train_set_->size(), kSmallestShard));
    plan_length();
  }

  TrainResult run() {
    restore_all();
    Reporter reporter(rank_ == 0, config_, ranks_, total_steps_);
    reporter_ = &reporter;
    if (!job_.only_evaluates) prepare_folder();
    reporter.begin(describe());
    if (job_.only_evaluates) {
      evaluate();
    } else {
      train();
    }
    result_.steps = state_.step;
    result_.epochs = epoch_of(state_.position);
    result_.model_dir = config_.model_dir;
    reporter.summary(result_);
    return result_;
  }

 private:
  // Settings that decide about bits get their values now, so that a checkpoint has them.
  void resolve() {
    batch_ = global_batch(config_, ranks_);
    config_.batch_size = batch_;
    config_.batch_size_per_replica = 0;
    if (config_.reduction == "exact" && config_.threads_per_rank == 0) config_.threads_per_rank = 1;
  }

  RuntimeOptions runtime_settings() const {
    RuntimeOptions options = runtime_options(Knobs::resolve({}, process_env, ""));
    options.store = job_.store;
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
    if (steps == 0)
      throw UsageError(
          fmt::format("{} samples in batches of {}, {} a step: there is no whole step in an epoch",
                      share_.samples, batch_, config_.backward_passes_per_step));
    total_steps_ = config_.max_number_of_steps > 0 ? config_.max_number_of_steps
                                                   : steps * config_.train_epochs;
    const double epochs = static_cast<double>(total_steps_) / static_cast<double>(steps);
    schedule_.emplace(config_, epochs, batch_);
  }

  double epoch_of(const Position& position) const {
    return static_cast<double>(position.epoch) +
           static_cast<double>(position.next) / static_cast<double>(share_.samples);
  }

  std::string describe() const {
    return fmt::format(
        "{} ({} parameters) on {}: {} training samples, {} to test\n"
        "{} rank(s) over {}, {} thread(s) each; global batch {}, {:.4g} a replica; {} steps; {} "
        "reduction\n{}",
        config_.model, replica_->parameter_count(), config_.dataset, train_set_->size(),
        test_set_->size(), ranks_, runtime_.world().backend(), threads_, batch_,
        static_cast<double>(batch_) / ranks_, total_steps_, config_.reduction,
        state_.step > 0 ? fmt::format("going on after step {}\n", state_.step) : "");
  }

  // Rank 0 looks for a checkpoint; everything is sent to the others, also of a fresh start.
  void restore_all() {
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
    share_state(runtime_.world(), state_, *replica_, *optimizer_);
  }

  // Restore priority: model_dir, then checkpoint_path, then a fresh start.
  std::optional<Snapshot> find_checkpoint() {
    const auto warn = [](const std::string& line) { fmt::print(stderr, "horon: {}\n", line); };
    if (!config_.model_dir.empty() && config_.resume == "auto") {
      if (auto found = CheckpointStore(config_.model_dir).load_newest(warn)) return found;
    }
    if (!config_.checkpoint_path.empty()) {
      Snapshot snapshot = CheckpointStore::load(config_.checkpoint_path);
      if (job_.only_evaluates) return snapshot;
      snapshot.step = 0;  // its weights, and nothing else
      snapshot.position = {};
      snapshot.optimizer.clear();
      return snapshot;
    }
    if (job_.only_evaluates)
      throw UsageError("nothing to evaluate: --model_dir with a checkpoint, or --checkpoint_path");
    if (config_.model_dir.empty()) config_.model_dir = new_run_folder(config_);
    return std::nullopt;
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
    restore(snapshot, state_, *replica_, *optimizer_);
  }

  void prepare_folder() {
    if (rank_ != 0) return;
    file::make_folder(config_.model_dir);
    file::write(file::join(config_.model_dir, "config.json"), to_json(config_).dump(1) + "\n");
    reporter_->open(config_.model_dir);
    checkpoints_.emplace(config_.model_dir, config_.keep_checkpoint_max);
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
    return options;
  }

  void train() {
    PipelineOptions options = pipeline_options(train_set_, true);
    options.batch = batch_;
    options.shards = share_.shards;
    options.smallest = kSmallestShard;
    options.drops_remainder = config_.drop_remainder;
    options.start = state_.position;
    Pipeline pipeline(options);
    const Stopwatch watch;
    Stopwatch since_save;
    uint64_t seen = 0;
    bool stop = state_.step >= total_steps_;
    if (stop)
      reporter_->say(fmt::format("step {} of {} was reached before; nothing to do", state_.step,
                                 total_steps_));
    uint64_t saved = state_.step;
    while (!stop) {
      const uint64_t epoch_before = state_.position.epoch;
      const StepSums sums = one_step(pipeline);
      seen += static_cast<uint64_t>(sums.score.count);
      const bool ends_epoch = state_.position.epoch != epoch_before;
      result_.interrupted = sums.stops > 0;
      stop = state_.step >= total_steps_ || result_.interrupted;
      if (state_.step % kDivergenceSteps == 0) check_replicas();
      const bool evaluates = ends_epoch && config_.epochs_between_evals > 0 &&
                             state_.position.epoch % config_.epochs_between_evals == 0;
      if ((evaluates || stop) && !result_.interrupted) evaluate();
      if (rank_ == 0 && (stop || is_due(ends_epoch, since_save))) {
        save(stop);
        saved = state_.step;
        since_save.restart();
      }
    }
    if (seen == 0) evaluate();  // nothing was to be trained
    result_.seconds = watch.seconds();
    result_.images_per_s = static_cast<double>(seen) / std::max(result_.seconds, 1e-9);
    if (rank_ == 0) result_.checkpoint = checkpoints_->path_of(saved);
    if (rank_ == 0) checkpoints_->finish();
    runtime_.world().barrier({.name = "end of training"});  // the last checkpoint is on disk
  }

  bool is_due(bool ends_epoch, const Stopwatch& since) const {
    if (config_.save_checkpoints_steps > 0 && state_.step % config_.save_checkpoints_steps == 0)
      return true;
    if (config_.save_checkpoints_secs > 0 && since.seconds() >= config_.save_checkpoints_secs)
      return true;
    return ends_epoch && config_.save_checkpoints_epochs > 0 &&
           state_.position.epoch % config_.save_checkpoints_epochs == 0;
  }

  // A disk that is full does not end the training; three failures in a row do. Whether a checkpoint
  // was written is known when the next one is due.
  void save(bool last) {
    wait_for_save(false);
    checkpoints_->save_later(take_snapshot(state_, *replica_, *optimizer_, config_, ranks_));
    if (last) wait_for_save(true);
  }
  void wait_for_save(bool last) {
    try {
      checkpoints_->finish();
      failed_saves_ = 0;
    } catch (const IoError& error) {
      if (last || ++failed_saves_ >= 3)
        throw Error(fmt::format("checkpoint: {}", error.what()), ExitCode::kCheckpoint);
      reporter_->say(
          fmt::format("a checkpoint was not written, training goes on: {}", error.what()));
    }
  }

  StepSums one_step(Pipeline& pipeline) {
    std::vector<Batch> batches;
    std::vector<std::vector<Shard>> passes;
    std::vector<uint64_t> global;
    const double epoch = epoch_of(state_.position);
    for (uint64_t pass = 0; pass < config_.backward_passes_per_step; ++pass) {
      batches.push_back(*pipeline.next());
      state_.position = batches.back().after;
      global.push_back(batches.back().global_count);
    }
    for (const Batch& batch : batches) passes.push_back(shards_of(batch));
    const std::vector<float> statistics = copy_statistics();
    const StepSums sums = sync_->step(passes, global, job_.stop.stop_requested());
    ++state_.step;
    const double rate = schedule_->at(epoch);
    if (is_finite(sums)) {
      optimizer_->step(sync_->slices(), rate);
    } else {
      put_statistics(statistics);  // as if the step had not been
    }
    result_.train_loss = sums.score.loss / std::max(sums.score.count, 1.0);
    reporter_->step(state_.step, epoch_of(state_.position), result_.train_loss, rate,
                    static_cast<uint64_t>(sums.score.count));
    return sums;
  }

  std::vector<float> copy_statistics() const {
    std::vector<float> values;
    for (const ModelArray& one : replica_->statistics())
      values.insert(values.end(), one.data, one.data + one.count);
    return values;
  }
  void put_statistics(const std::vector<float>& values) {
    const float* at = values.data();
    for (const ModelArray& one : replica_->statistics()) {
      std::copy_n(at, one.count, one.data);
      at += one.count;
    }
  }

  std::vector<Shard> shards_of(const Batch& batch) const {
    std::vector<Shard> shards;
    const uint64_t parts = share_.shards == 0 ? static_cast<uint64_t>(ranks_) : share_.shards;
    uint64_t number = cut(parts, static_cast<uint64_t>(ranks_), static_cast<uint64_t>(rank_)).first;
    const uint64_t each = batch.count() == 0 ? 0 : batch.pixels.count / batch.count();
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

  // The same on every rank: they look at the same reduced numbers.
  bool is_finite(const StepSums& sums) {
    std::string where = sums.flawed > 0 ? fmt::format("the loss of {} rank(s)", sums.flawed) : "";
    for (const Slice& slice : sync_->slices()) {
      if (!where.empty()) break;
      float sum = 0;  // stays finite unless something is not: 0 * x
      for (uint64_t i = 0; i < slice.count; ++i) sum += slice.gradient[i] * 0.0F;
      if (sum != 0.0F) where = fmt::format("the gradient of '{}'", slice.name);
    }
    if (where.empty()) return true;
    if (config_.nan_policy == "abort")
      throw Error(fmt::format("step {}: {} is not finite; the last checkpoint is good; "
                              "--nan_policy skip-step passes over such steps",
                              state_.step, where),
                  ExitCode::kNonFinite);
    reporter_->say(
        fmt::format("step {}: {} is not finite, the step is skipped", state_.step, where));
    return false;
  }

  // All replicas must hold the same bits.
  void check_replicas() {
    uint32_t crc = 0;
    for (const ModelArray& one : replica_->parameters()) crc = crc32c(one.data, one.count * 4, crc);
    std::array<int64_t, 1> mine = {crc};
    const Gathered all = runtime_.world().all_gather(view_of(mine), {.name = "replica check"});
    std::vector<int> others;
    for (int r = 0; r < ranks_; ++r) {
      if (all.data.as<int64_t>()[static_cast<size_t>(r)] != all.data.as<int64_t>()[0])
        others.push_back(r);
    }
    if (!others.empty())
      throw Error(fmt::format("step {}: {} hold other weights than rank 0", state_.step,
                              name_ranks(others)),
                  ExitCode::kMismatch);
  }

  void evaluate() {
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
    runtime_.world().all_reduce(view_of(sums), {.name = "evaluation"});
    const double count = std::max(sums[3], 1.0);
    result_.test_loss = sums[0] / count;
    result_.test_top1 = sums[1] / count;
    result_.test_top5 = sums[2] / count;
    result_.test_samples = static_cast<uint64_t>(sums[3]);
    state_.best_accuracy = std::max(state_.best_accuracy, result_.test_top1);
    reporter_->evaluated(state_.step, epoch_of(state_.position), result_.test_loss,
                         result_.test_top1, result_.test_top5);
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
  int failed_saves_ = 0;
  std::optional<CheckpointStore> checkpoints_;
  Reporter* reporter_ = nullptr;
  TrainResult result_;
};

}  // namespace

TrainResult run_rank(RankJob job) { return Run(std::move(job)).run(); }

}  // namespace horon::train
