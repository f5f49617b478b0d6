#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "horon/train/gradient_sync.h"
#include "horon/train/run_state.h"
#include "horon/train/schedule.h"
#include "horon/train/screen.h"

namespace horon::train {

// How good the network was on a set of samples.
struct Evaluation {
  std::string split;  // "validation" or "test"
  double loss = 0;    // a sample's, on average
  double top1 = 0;    // share of samples
  double top5 = 0;
  uint64_t samples = 0;  // 0: nothing was evaluated
};

struct TrainResult {
  uint64_t steps = 0;
  double epochs = 0;
  double train_loss = 0;
  double test_loss = 0;  // of the last weights
  double test_top1 = 0;
  double test_top5 = 0;
  uint64_t test_samples = 0;
  Evaluation validation = {};  // the last one
  double seconds = 0;
  double images_per_s = 0;
  bool interrupted = false;  // stopped by a signal; a checkpoint was written
  std::string model_dir;
  std::string checkpoint;        // the last one
  std::string best;              // the one with the best accuracy; empty: none was kept
  uint64_t input_bytes = 0;      // of this rank's memory: batches, buffers, the data set's own
  uint64_t corrupt_records = 0;  // that were passed over, of all ranks
  std::string corrupt_reason;    // the first
};

// What a callback sees of its rank's run, and what it may do there.
struct Moment {
  const TrainConfig& config;
  int rank;
  int ranks;
  Communicator& world;
  const Trainee& trainee;
  RunState& state;  // step, position in the data, best accuracy
  Screen& screen;
  uint64_t total_steps;
  std::string go_on = {};  // how people resume this run

  double epoch = 0;         // passes over the data, with a fraction
  double rate = 0;          // of the step: on_step_begin may set it
  StepSums sums = {};       // of the step, of all ranks
  double loss = 0;          // a sample's, in this step, on average
  bool skips = false;       // on_gradients: true leaves the parameters as they are
  bool ends_epoch = false;  // the step was the last of its epoch
  bool is_last = false;     // no step follows
  TrainResult result = {};
  Evaluation evaluation = {};  // on_evaluated: what was just measured
  bool decides = false;        // on_evaluated: by the set that decides what is best
  // Numbers of this rank that callbacks want averaged over all ranks and logged: each a sum and the
  // number of samples that it is of.
  struct Metric {
    double sum = 0;
    double count = 0;
  };
  std::map<std::string, Metric> metrics = {};
  std::map<std::string, double> averages = {};  // of the epoch that ended

  // Ends the run after the next step that begins: called in on_step_begin, after this one. All
  // ranks agree, whoever asked.
  void stop() { wants_end = true; }
  bool wants_end = false;
};

// Something that is done along the way. One object on each rank; all ranks call all functions in
// the same order, so these may use moment.world. What they throw ends the run.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_begin(Moment&) {}       // the checkpoint is loaded, no step was taken
  virtual void on_step_begin(Moment&) {}  // before the batch
  virtual void on_gradients(Moment&) {}   // summed over ranks; before the update
  virtual void on_step_end(Moment&) {}
  virtual void on_evaluated(Moment&) {}  // moment.result has the numbers
  virtual void on_boundary(Moment&) {}   // step and evaluation are over: a moment to save
  virtual void on_end(Moment&) {}
};
using CallbackMaker = std::function<std::unique_ptr<Callback>(int rank)>;
using Callbacks = std::vector<std::unique_ptr<Callback>>;

// Everything of rank 0 (weights, statistics, optimizer, position) on every rank, before step 0.
std::unique_ptr<Callback> make_broadcast_state();
// moment.rate from the schedule, warm-up included.
std::unique_ptr<Callback> make_follow_schedule(Schedule schedule);
// Numbers that are not finite: Error (exit code 17) that names rank and tensor, or the step is
// skipped on all ranks; not more than 20 in a row.
std::unique_ptr<Callback> make_nan_guard(NanPolicy policy);
// Every `steps` the weights of all ranks are compared. Error (exit code 11) naming rank and tensor.
std::unique_ptr<Callback> make_check_replicas(uint64_t steps = 100);
// moment.averages from moment.metrics, at the end of each epoch: sums over all ranks by counts.
std::unique_ptr<Callback> make_average_metrics();
// After that step; a run that is past it takes one more.
std::unique_ptr<Callback> make_stop_at_step(uint64_t step);
// Progress bar with images/s, loss and time left on a terminal, else a line every n steps; the
// summary.
std::unique_ptr<Callback> make_console();
// log.jsonl in model_dir.
std::unique_ptr<Callback> make_json_lines();
// As config.save_checkpoints_* say, and always the last one. On rank 0.
std::unique_ptr<Callback> make_save_checkpoints();
// The weights of the best accuracy so far in model_dir/best: of the validation set where there is
// one, else of the test set. On rank 0.
std::unique_ptr<Callback> make_keep_best();

// What every run has, in order; `own` come before those that average, save and report.
Callbacks standard_callbacks(const TrainConfig& config, const Schedule& schedule, Callbacks own);

}  // namespace horon::train
