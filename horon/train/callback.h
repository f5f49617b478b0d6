#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "horon/report/event.h"
#include "horon/report/screen.h"
#include "horon/train/gradient_sync.h"
#include "horon/train/run_state.h"
#include "horon/train/schedule.h"

namespace horon::train {

using report::Screen;

// Quality of the network on a set of samples.
struct Evaluation {
  std::string split;  // "validation" or "test"
  double loss = 0;    // average per sample
  double top1 = 0;    // fraction of the samples
  double top5 = 0;
  uint64_t samples = 0;  // 0: nothing was evaluated
};

// What a run achieved. A value.
struct TrainResult {
  uint64_t steps = 0;
  double epochs = 0;
  double train_loss = 0;
  double test_loss = 0;  // with the last weights
  double test_top1 = 0;
  double test_top5 = 0;
  uint64_t test_samples = 0;
  Evaluation validation = {};  // the last one
  double seconds = 0;
  double images_per_s = 0;
  bool interrupted = false;  // stopped by a signal; a checkpoint was written
  std::string model_dir;
  std::string checkpoint;         // the last one
  std::string best;               // with the best accuracy; empty: none was kept
  double seconds_encrypting = 0;  // of this rank's connections, in processor time
  uint64_t input_bytes = 0;       // memory of this rank: batches, buffers, the data set
  uint64_t corrupt_records = 0;   // skipped, over all ranks
  std::string corrupt_reason;     // of the first one
};

// What a callback sees of its rank's run and what it may change. Valid during the call.
struct Moment {
  const TrainConfig& config;
  int rank;
  int ranks;
  Communicator& world;
  const Trainee& trainee;
  RunState& state;  // step, position in the data, best accuracy
  Screen& screen;
  uint64_t total_steps;
  std::string resume_command = {};  // for users
  GradientSync* sync = nullptr;     // how gradients are shared; null: not known

  double epoch = 0;         // passes over the data, with a fraction
  double rate = 0;          // learning rate of the step; on_step_begin may set it
  StepSums sums = {};       // of the step, over all ranks
  double loss = 0;          // of this step, average per sample
  bool skips = false;       // set in on_gradients: leaves the parameters unchanged
  bool ends_epoch = false;  // the step was the last of its epoch
  bool is_last = false;     // no step follows
  TrainResult result = {};
  Evaluation evaluation = {};  // on_evaluated: the new measurement
  bool decides = false;        // on_evaluated: it is the one that decides which weights are best
  // Numbers of this rank that are averaged over all ranks and logged: each is a sum and the number
  // of samples in it.
  struct Metric {
    double sum = 0;
    double count = 0;
  };
  std::map<std::string, Metric> metrics = {};
  std::map<std::string, double> averages = {};  // of the finished epoch

  std::string saved = {};  // on_boundary: the checkpoint being written since then; or empty

  // Ends the run after the next step to begin; called in on_step_begin, after this one. Any rank
  // may call it; all ranks stop together.
  void stop() { wants_end = true; }
  bool wants_end = false;
};

// An action during training: logging, checkpoints, schedules, guards. Each rank has an object of
// its own, owned by the run. All ranks call all functions in the same order, on the thread that
// trains, so they may use moment.world. Exceptions end the run.
//
//   on_begin                          a checkpoint was loaded; no step was taken yet
//   for each step:
//     on_step_begin                   set moment.rate here
//       forward, backward, gradients summed over all ranks
//     on_gradients                    moment.skips = true leaves the parameters unchanged
//       update
//     on_step_end                     moment.loss, moment.sums
//     on_evaluated                    only after an evaluation; moment.evaluation
//     on_boundary                     the step and its evaluation are over: save here
//   on_end                            moment.result
//
//   class Printer : public horon::train::Callback {
//     void on_step_end(Moment& moment) override { if (moment.rank == 0) print(moment.loss); }
//   };
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_begin(Moment&) {}       // checkpoint loaded, no step taken
  virtual void on_step_begin(Moment&) {}  // before the batch
  virtual void on_gradients(Moment&) {}   // summed over ranks; before the update
  virtual void on_step_end(Moment&) {}
  virtual void on_evaluated(Moment&) {}  // moment.result has the numbers
  virtual void on_boundary(Moment&) {}   // step and evaluation are over: may save
  virtual void on_end(Moment&) {}
};
using CallbackMaker = std::function<std::unique_ptr<Callback>(int rank)>;
using Callbacks = std::vector<std::unique_ptr<Callback>>;

// Sends rank 0's state (weights, statistics, optimizer, position) to every rank before step 0.
std::unique_ptr<Callback> make_broadcast_state();
// Sets moment.rate from the schedule, including warm-up.
std::unique_ptr<Callback> make_follow_schedule(Schedule schedule);
// Handles values that are not finite: Error (exit code 17) that names rank and tensor, or the step
// is skipped on all ranks; the 20th in a row ends the run.
std::unique_ptr<Callback> make_nan_guard(NanPolicy policy);
// Compares the weights of all ranks every `steps` steps. Error (exit code 11) that names rank and
// tensor.
std::unique_ptr<Callback> make_check_replicas(uint64_t steps = 100);
// Computes moment.averages from moment.metrics at the end of each epoch: sums over all ranks,
// divided by counts.
std::unique_ptr<Callback> make_average_metrics();
// Stops the run after that step; a run that is already past it takes one more.
std::unique_ptr<Callback> make_stop_at_step(uint64_t step);
// Sends rank 0's run as events (report/event.h) to sinks. They are made at the beginning of the run
// and owned by the callback.
using SinkMaker = std::function<report::Sinks(const Moment&)>;
std::unique_ptr<Callback> make_reporter(SinkMaker make);
// Reports to the screen: on a terminal a progress bar with images/s, loss and time left, otherwise
// a line every n steps; then the summary.
std::unique_ptr<Callback> make_console();
// Writes log.jsonl in model_dir.
std::unique_ptr<Callback> make_json_lines();
// Both of the above.
std::unique_ptr<Callback> make_report();
// Saves checkpoints as config.save_checkpoints_* say, and always at the end. On rank 0.
std::unique_ptr<Callback> make_save_checkpoints();
// Keeps the weights with the best accuracy so far in model_dir/best: accuracy on the validation set
// if there is one, otherwise on the test set. On rank 0.
std::unique_ptr<Callback> make_keep_best();

// The callbacks of every run, in order; `own` run before those that average, save and report.
Callbacks standard_callbacks(const TrainConfig& config, const Schedule& schedule, Callbacks own);

}  // namespace horon::train
