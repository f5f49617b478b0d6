// Callbacks that keep what was learned.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>

#include "horon/base/error.h"
#include "horon/base/time.h"
#include "horon/file/file.h"
#include "horon/train/callback.h"
#include "horon/train/flaw.h"

namespace horon::train {
namespace {

class SaveCheckpoints final : public Callback {
 public:
  void on_begin(Moment& moment) override {
    saved_ = moment.state.step;
    if (moment.rank == 0)
      store_.emplace(moment.config.model_dir, moment.config.keep_checkpoint_max);
  }
  void on_boundary(Moment& moment) override {
    moment.saved.clear();
    const bool collects = moment.sync != nullptr && moment.sync->keeps_codec_state();
    if (!(collects ? is_due_for_all(moment) : store_ && is_due(moment))) return;
    auto codec_states = collects ? moment.sync->save_codec_states() : std::vector<CodecStates>();
    if (!store_) return;
    save(moment, std::move(codec_states));
    saved_ = moment.state.step;
    moment.saved = store_->path_of(saved_);
    since_.restart();
  }
  void on_end(Moment& moment) override {
    if (!store_) return;
    store_->finish();
    if (file::exists(store_->path_of(saved_))) moment.result.checkpoint = store_->path_of(saved_);
  }

 private:
  bool is_due(const Moment& moment) const {
    const TrainConfig& config = moment.config;
    const uint64_t epoch = moment.state.position.epoch;
    if (moment.is_last) return true;
    if (config.save_checkpoints_steps > 0 && moment.state.step % config.save_checkpoints_steps == 0)
      return true;
    if (config.save_checkpoints_secs > 0 && since_.seconds() >= config.save_checkpoints_secs)
      return true;
    return moment.ends_epoch && config.save_checkpoints_epochs > 0 &&
           epoch % config.save_checkpoints_epochs == 0;
  }

  // Only clocks differ; rank 0's counts.
  bool is_due_for_all(const Moment& moment) const {
    std::array<uint8_t, 1> due = {is_due(moment) ? uint8_t{1} : uint8_t{0}};
    if (moment.config.save_checkpoints_secs > 0)
      moment.world.broadcast(view_of(due), 0, {.name = "checkpoint is due", .timeout = kNoLimit});
    return due[0] != 0;
  }

  // A full disk does not end the training; three failures in a row do. Whether a checkpoint
  // was written is known when the next one is due.
  void save(Moment& moment, std::vector<CodecStates> codec_states) {
    wait(moment, false);
    Snapshot snapshot = take_snapshot(moment.state, moment.trainee, moment.config, moment.ranks);
    snapshot.codec_states = std::move(codec_states);
    check_finite(snapshot, moment.trainee.replica);
    store_->save_later(std::move(snapshot));
    if (moment.is_last) wait(moment, true);
  }
  void wait(Moment& moment, bool last) {
    try {
      store_->finish();
      failed_ = 0;
    } catch (const IoError& error) {
      if (last || ++failed_ >= 3)
        throw Error(fmt::format("checkpoint: {}", error.what()), ExitCode::kCheckpoint);
      moment.screen.say(
          fmt::format("a checkpoint could not be written; training continues: {}", error.what()));
    }
  }
  // Non-finite weights never replace finite ones.
  static void check_finite(const Snapshot& snapshot, const Replica& replica) {
    for (const auto* arrays : {&replica.parameters(), &replica.statistics()}) {
      for (const ModelArray& one : *arrays) {
        const std::string& bytes = snapshot.model.at(one.name).bytes;
        if (count_flaws(reinterpret_cast<const float*>(bytes.data()), one.count) > 0)
          throw Error(fmt::format("step {}: '{}' is not finite", snapshot.step, one.name),
                      ExitCode::kNonFinite);
      }
    }
  }

  std::optional<CheckpointStore> store_;
  Stopwatch since_;
  uint64_t saved_ = 0;
  int failed_ = 0;
};

class KeepBest final : public Callback {
 public:
  void on_begin(Moment& moment) override {
    if (moment.rank == 0) store_.emplace(file::join_path(moment.config.model_dir, "best"), 1);
  }
  void on_evaluated(Moment& moment) override {
    const Evaluation& found = moment.evaluation;
    const bool is_better =
        moment.decides && std::isfinite(found.loss) && found.top1 > moment.state.best_accuracy;
    if (is_better) moment.state.best_accuracy = found.top1;
    if (!is_better || !store_) return;
    Snapshot snapshot = take_snapshot(moment.state, moment.trainee, moment.config, moment.ranks);
    snapshot.optimizer.clear();                  // for use, not for resuming
    attempt(moment, [&] { store_->finish(); });  // waits for the previous one
    attempt(moment, [&] { store_->save_later(std::move(snapshot)); });
  }
  void on_end(Moment& moment) override {
    if (!store_) return;
    attempt(moment, [&] { store_->finish(); });
    const auto steps = store_->steps();
    if (!steps.empty()) moment.result.best = store_->path_of(steps.back());
  }

 private:
  static void attempt(Moment& moment, const std::function<void()>& action) {
    try {
      action();
    } catch (const IoError& error) {
      moment.screen.say(fmt::format("the best weights were not written: {}", error.what()));
    }
  }
  std::optional<CheckpointStore> store_;
};

}  // namespace

std::unique_ptr<Callback> make_save_checkpoints() { return std::make_unique<SaveCheckpoints>(); }
std::unique_ptr<Callback> make_keep_best() { return std::make_unique<KeepBest>(); }

}  // namespace horon::train
