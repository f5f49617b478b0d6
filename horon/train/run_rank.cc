#include "horon/train/run_rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "horon/base/error.h"
#include "horon/base/text.h"
#include "horon/base/thread.h"
#include "horon/data/pipeline.h"
#include "horon/file/file.h"
#include "horon/train/length.h"
#include "horon/train/run_data.h"
#include "horon/train/run_folder.h"
#include "horon/train/step.h"

namespace horon::train {
namespace {

constexpr uint64_t kEvaluationBatch = 256;  // of one rank

int threads_for(const TrainConfig& config, const Topology& topology, int replicas_here) {
  if (config.threads_per_rank > 0) return static_cast<int>(config.threads_per_rank);
  const int mine = static_cast<int>(usable_cores().size());
  const int all_cores = static_cast<int>(std::thread::hardware_concurrency());
  // Bound to some of the cores already, or not.
  const int threads =
      mine < all_cores ? mine / replicas_here : all_cores / std::max(topology.local_size, 1);
  return std::max(threads, 1);
}

class TrainingRun {
 public:
  explicit TrainingRun(RankTask job)
      : job_(std::move(job)),
        config_(job_.config),
        rank_(job_.session.rank()),
        ranks_(job_.session.size()),
        runtime_(job_.session.runtime()) {
    check_config(config_, ranks_);
    resolve();
    open_sets();
    make_parts();
    plan_length();
  }

  TrainResult run() {
    Screen screen(rank_ == 0);
    begin(screen);
    const Trainee trainee{*replica_, *optimizer_, job_.accelerator};
    Moment moment{config_, rank_, ranks_, runtime_.world(), trainee, state_, screen, total_steps_};
    moment.result.model_dir = config_.model_dir;
    moment.resume_command =
        job_.program.empty()
            ? "horon train --model_dir " + quote_for_shell(config_.model_dir)
            : fmt::format("{} (its model_dir is '{}')", job_.program, config_.model_dir);
    moment.sync = sync_.get();
    make_callbacks();
    for (const auto& one : callbacks_) {
      moment.epoch = epoch_of(state_.position);  // callbacks may receive it from rank 0
      one->on_begin(moment);
    }
    moment.total_steps = total_steps_ = length_.total(state_.step, state_.position);
    if (StopOnSignal* signals = job_.session.signals()) signals->leave_at_once(false);
    screen.say(describe());
    if (job_.only_evaluates) {
      moment.is_last = true;
      evaluate(data_.test ? data_.test : data_.validation, moment);
    } else {
      train_or_say_what_is_left(moment);
    }
    moment.result.steps = state_.step;
    moment.result.epochs = epoch_of(state_.position);
    if (sync_->mended > 0)
      screen.say(fmt::format("{} missing gradient(s) were taken as zero", sync_->mended));
    sum_up_input(runtime_.world(), input_, config_.max_corrupt_records > 0, moment.result);
    for (const auto& one : callbacks_) one->on_end(moment);
    runtime_.world().barrier({.name = "end of training",
                              .timeout = kNoLimit});  // after this the last checkpoint is on disk
    check_end(moment);
    return moment.result;
  }

 private:
  // After an error about non-finite values rank 0 prints which checkpoint is on disk.
  void train_or_say_what_is_left(Moment& moment) {
    try {
      train(moment);
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::kNonFinite || rank_ != 0) throw;
      callbacks_.clear();  // finishes a checkpoint that is being written
      const CheckpointStore store(config_.model_dir);
      const auto steps = store.steps();
      throw Error(
          fmt::format("{}; {}", error.what(),
                      steps.empty() ? "no checkpoint was written"
                                    : "the last good checkpoint is " + store.path_of(steps.back())),
          ExitCode::kNonFinite);
    }
  }

  // Judged by the last evaluation or, without one, the last step. Not for an interrupted run.
  void check_end(const Moment& moment) const {
    if (moment.result.interrupted) return;
    const Evaluation& last = moment.evaluation;
    const bool evaluated = last.samples > 0;
    if (std::isfinite(evaluated ? last.loss : moment.loss)) return;
    throw Error(fmt::format("step {}: the loss on the {} set is not finite: these weights are "
                            "unusable",
                            state_.step, evaluated ? last.split : "training"),
                ExitCode::kNonFinite);
  }

  // Settings that affect result bits get their values now, so that checkpoints contain them.
  void resolve() {
    batch_ = global_batch(config_, ranks_);
    config_.batch_size = batch_;
    config_.batch_size_per_replica = 0;
    config_.device = job_.accelerator.is_cpu() ? DeviceChoice::kCpu : DeviceChoice::kCuda;
    if (config_.reduction == Reduction::kExact && config_.threads_per_rank == 0)
      config_.threads_per_rank = 1;
  }

  void open_sets() {
    const bool own = job_.ingredients != nullptr && job_.ingredients->dataset;
    data_ =
        open_data(config_, own ? job_.ingredients->dataset : DatasetMaker{}, job_.only_evaluates);
    compare_data(runtime_.world(), data_);
    if (!data_.train) return;
    state_.data = {data_.train->size(), index_digest(*data_.train)};
    if (data_.train->size() < kSmallestShard)
      throw UsageError(fmt::format("{} has {} sample(s): batch norm needs at least {}",
                                   config_.dataset, data_.train->size(), kSmallestShard));
    const bool exact = config_.reduction == Reduction::kExact;
    batching_ = {data_.train->size(), batch_, exact ? config_.logical_shards : 0,
                 config_.drop_remainder, kSmallestShard};
    check_batch_parts(config_, data_.train->size(), batch_, ranks_);
  }

  void make_parts() {
    threads_ = threads_for(config_, job_.session.topology(), job_.replicas_here);
    Replica::Options options;
    options.threads = threads_;
    options.device = job_.accelerator.device;
    if (job_.ingredients != nullptr) options.model = job_.ingredients->model;
    replica_.emplace(config_, data_.shape, options);
    if (options.model && config_.model == TrainConfig{}.model)
      config_.model = replica_->type_name();  // the program's own name is kept
    const std::string codec = job_.ingredients != nullptr ? job_.ingredients->codec : "";
    sync_ = make_sync(config_, runtime_, *replica_, job_.accelerator, codec);
    const bool own = job_.ingredients != nullptr && job_.ingredients->optimizer;
    optimizer_ = own ? job_.ingredients->optimizer(sync_->slices(), job_.accelerator)
                     : make_optimizer(config_, sync_->slices(), job_.accelerator);
    require(optimizer_ != nullptr, "optimizer_fn gave no optimizer");
  }

  // An evaluation only prints.
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

  void plan_length() {
    if (job_.only_evaluates) {
      schedule_.emplace(config_, 1.0, batch_);
      return;
    }
    if (config_.max_number_of_steps > 0) config_.train_epochs = 0;
    length_ = {config_.train_epochs, config_.max_number_of_steps, config_.backward_passes_per_step,
               batches_in_epoch(batching_), batch_};
    if (length_.batches == 0)
      throw UsageError(fmt::format("{} samples in batches of {}: there is no whole batch",
                                   batching_.samples, batch_));
    schedule_.emplace(config_, length_.in_epochs(), batch_);
    if (const auto idle = schedule_->idle_from())
      throw UsageError(
          fmt::format("--learning_rate_strategy {}: its last rate, at epoch {:g}, is 0, but the "
                      "run continues to {:g}: nothing would be learned; add a stage",
                      config_.learning_rate_strategy, *idle, length_.in_epochs()));
    total_steps_ = length_.total(0, {});
  }

  double epoch_of(const Position& position) const {
    return static_cast<double>(position.epoch) +
           static_cast<double>(position.next) /
               static_cast<double>(std::max<uint64_t>(batching_.samples, 1));
  }

  std::string describe() const {
    return fmt::format(
        "{} ({} parameters) on {}: {}\n"
        "{}\n{} rank(s) over {}, {} thread(s) each, on {}; global batch {}, {:.4g} a replica; {} "
        "steps; {} reduction\n{}",
        config_.model, replica_->parameter_count(), config_.dataset, describe_data(data_),
        describe_rate(config_), ranks_, runtime_.world().backend(), threads_,
        name_of(job_.accelerator.device), batch_, static_cast<double>(batch_) / ranks_,
        total_steps_, get_field(config_, "reduction"),
        state_.step > 0 ? fmt::format("resuming after step {}\n", state_.step) : "");
  }

  // Rank 0 looks for a checkpoint, which callbacks send to the others, except what codecs kept, and
  // takes the folder.
  void begin(Screen& screen) {
    std::string failure;
    std::vector<CodecStates> codec_states;
    if (rank_ == 0) {
      try {
        if (const auto found = find_checkpoint()) {
          take(*found);
          codec_states = found->codec_states;
        }
        if (!job_.only_evaluates) prepare_folder(screen);
      } catch (const Error& error) {
        failure = static_cast<char>(error.exit_code()) + std::string(error.what());
      }
    }
    failure = broadcast_text(runtime_.world(), failure);
    if (!failure.empty()) throw Error(failure.substr(1), static_cast<ExitCode>(failure[0]));
    config_.model_dir = broadcast_text(runtime_.world(), config_.model_dir);
    if (sync_->keeps_codec_state() && !job_.only_evaluates)
      sync_->restore_codec_states(codec_states);
  }

  // Restore priority: model_dir, then checkpoint_path, then a fresh start.
  std::optional<Snapshot> find_checkpoint() {
    const auto warn = [](const std::string& line) { fmt::print(stderr, "horon: {}\n", line); };
    const bool looks = job_.only_evaluates || config_.resume == ResumeMode::kAuto;
    if (!config_.model_dir.empty() && looks) {
      const CheckpointStore store(config_.model_dir);
      if (auto found = store.load_newest(warn)) return found;
      if (!job_.only_evaluates && !store.steps().empty())
        warn("no valid checkpoint is left: starting from scratch");
    }
    if (job_.only_evaluates && !config_.checkpoint_path.empty())
      return CheckpointStore::load(config_.checkpoint_path);
    if (job_.only_evaluates)
      throw UsageError("nothing to evaluate: --model_dir with a checkpoint, or --checkpoint_path");
    if (config_.model_dir.empty()) config_.model_dir = new_run_folder(config_.model);
    if (config_.checkpoint_path.empty()) return std::nullopt;
    Snapshot start;  // only its weights are used
    start.config = config_;
    start.model = CheckpointStore::load(config_.checkpoint_path).model;
    return start;
  }

  void take(Snapshot snapshot) {
    const auto changed = changes_since(snapshot);
    if (!changed.empty() && snapshot.step > 0 && !job_.only_evaluates)
      throw UsageError(fmt::format("{} was trained with other settings; give them again, or "
                                   "another --model_dir, or --resume never:\n  {}",
                                   config_.model_dir, fmt::join(changed, "\n  ")),
                       ExitCode::kConfig);
    if (job_.only_evaluates) {
      snapshot.optimizer.clear();                 // may be another optimizer's
      batching_.samples = snapshot.data.samples;  // to print the epoch of the checkpoint
    }
    restore(snapshot, state_, {*replica_, *optimizer_, job_.accelerator});
  }

  std::vector<std::string> changes_since(const Snapshot& snapshot) const {
    auto changed = differences(config_, snapshot.config);
    if (job_.only_evaluates) return changed;
    if (!snapshot.codec_states.empty() && !sync_->keeps_codec_state())
      changed.push_back("codec: none, there was one");
    // Stages may be appended to those that the run has finished.
    const bool both = has_stages(config_) && has_stages(snapshot.config);
    if (both &&
        schedule_->is_same_until(epoch_of(snapshot.position), Schedule(snapshot.config, 0, batch_)))
      std::erase_if(changed, [](const std::string& one) {
        return one.starts_with("learning_rate_strategy:");
      });
    if (snapshot.data.samples > 0 && snapshot.data != state_.data)
      changed.push_back(snapshot.data.samples == state_.data.samples
                            ? std::string("training data: other files, sizes or classes")
                            : fmt::format("training data: {} samples, there were {}",
                                          state_.data.samples, snapshot.data.samples));
    return changed;
  }

  void prepare_folder(Screen& screen) {
    file::make_folder(config_.model_dir);
    lock_.emplace(config_.model_dir, [&](const std::string& line) { screen.say(line); });
    remove_leftovers(config_.model_dir);
    remove_leftovers(file::join_path(config_.model_dir, "best"));
    if (config_.resume == ResumeMode::kNever) set_aside(config_.model_dir);
    nlohmann::json json = to_json(config_);
    json["resolved"] = {{"threads_per_rank", threads_},
                        {"ranks", ranks_},
                        {"backend", runtime_.world().backend()},
                        {"libtorch", torch_kind()},
                        {"training_samples", state_.data.samples}};
    file::write(file::join_path(config_.model_dir, "config.json"), json.dump(1) + "\n");
  }

  PipelineOptions pipeline_options(const std::shared_ptr<Dataset>& set, bool training) const {
    PipelineOptions options;
    options.dataset = set;
    options.recipe =
        find_recipe(data_.recipe, training, data_.shape.image_size, data_.shape.image_size);
    options.form.channels = data_.shape.channels;
    options.order.seed = config_.seed;
    options.order.shuffles = training;
    options.rank = rank_;
    options.ranks = ranks_;
    options.threads = static_cast<int>(std::max<uint64_t>(config_.input_threads, 1));
    options.max_corrupt_records = config_.max_corrupt_records;
    options.prefetch = 2 + static_cast<int>(config_.backward_passes_per_step);
    options.device = job_.accelerator.runtime;
    options.device_index = job_.accelerator.device.index;
    return options;
  }

  void train(Moment& moment) {
    PipelineOptions options = pipeline_options(data_.train, true);
    options.batch = batch_;
    options.shards = batching_.shards;
    options.smallest = kSmallestShard;
    options.drops_remainder = config_.drop_remainder;
    options.start = state_.position;
    options.epochs = config_.train_epochs;
    const Stopwatch watch;
    double seen = 0;
    moment.is_last = length_.is_over(state_.step, state_.position);
    if (moment.is_last) {
      moment.screen.say(
          fmt::format("step {} of {} is already done; nothing to do", state_.step, total_steps_));
      if (data_.watched()) evaluate(data_.watched(), moment);
    } else {
      Pipeline pipeline(options);
      TrainStep step({config_, *replica_, *optimizer_, *sync_, callbacks_, pipeline, state_,
                      length_, batching_, job_.accelerator, job_.stop});
      while (!moment.is_last) {
        step.run(moment);
        seen += moment.sums.score.count;
        const bool due = moment.ends_epoch && config_.epochs_between_evals > 0 &&
                         state_.position.epoch % config_.epochs_between_evals == 0;
        if ((due || moment.is_last) && !moment.result.interrupted && data_.watched())
          evaluate(data_.watched(), moment);
        if (moment.result.interrupted) moment.is_last = true;
        if (lock_) lock_->check();
        for (const auto& one : callbacks_) one->on_boundary(moment);
      }
      input_["train"] = pipeline.report();
    }
    moment.result.seconds = watch.seconds();
    moment.result.seconds_encrypting = moment.world.seconds_encrypting();
    moment.result.images_per_s = seen / std::max(watch.seconds(), 1e-9);
    if (data_.validation && data_.test && !moment.result.interrupted) evaluate(data_.test, moment);
  }

  void evaluate(const std::shared_ptr<Dataset>& set, Moment& moment) {
    PipelineOptions options = pipeline_options(set, false);
    options.batch =
        std::min<uint64_t>(set->size(), kEvaluationBatch * static_cast<uint64_t>(ranks_));
    options.epochs = 1;
    options.prefetch = 2;
    Pipeline pipeline(options);
    std::array<double, 5> sums = {};
    while (!job_.stop.stop_requested()) {
      const auto batch = pipeline.next();
      if (!batch) break;
      if (batch->count() == 0) continue;
      const Score score = replica_->evaluate({static_cast<const float*>(batch->pixels.data),
                                              batch->labels, batch->samples, state_.step});
      sums[0] += score.loss;
      sums[1] += score.top1;
      sums[2] += score.top5;
      sums[3] += score.count;
    }
    sums[4] = job_.stop.stop_requested() ? 1 : 0;
    runtime_.world().all_reduce(view_of(sums), {.name = "evaluation", .timeout = kNoLimit});
    const std::string split = set == data_.validation ? "validation" : "test";
    input_[split] = pipeline.report();
    moment.result.interrupted = sums[4] > 0;
    if (moment.result.interrupted) return;  // a partial evaluation is not reported
    const double count = std::max(sums[3], 1.0);
    moment.evaluation = {split, sums[0] / count, sums[1] / count, sums[2] / count,
                         static_cast<uint64_t>(sums[3])};
    moment.decides = set == data_.watched();
    if (split == "validation") {
      moment.result.validation = moment.evaluation;
    } else {
      moment.result.test_loss = moment.evaluation.loss;
      moment.result.test_top1 = moment.evaluation.top1;
      moment.result.test_top5 = moment.evaluation.top5;
      moment.result.test_samples = moment.evaluation.samples;
    }
    for (const auto& one : callbacks_) one->on_evaluated(moment);
  }

  RankTask job_;
  TrainConfig config_;
  int rank_;
  int ranks_;
  Runtime& runtime_;
  uint64_t batch_ = 0;
  RunData data_;
  int threads_ = 1;
  // What is trained: none of it knows of ranks. What brings ranks together is in the session and in
  // sync_, and can be made anew around it.
  std::optional<Replica> replica_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<GradientSync> sync_;
  std::optional<Schedule> schedule_;
  BatchOptions batching_;
  RunLength length_;
  uint64_t total_steps_ = 0;  // for display
  RunState state_;
  std::map<std::string, Pipeline::Report> input_;  // by split
  std::optional<FolderLock> lock_;                 // on rank 0
  Callbacks callbacks_;
};

}  // namespace

TrainResult run_rank(RankTask job) { return TrainingRun(std::move(job)).run(); }

}  // namespace horon::train
