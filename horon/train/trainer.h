#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "horon/data/dataset.h"
#include "horon/train/callback.h"
#include "horon/train/config.h"
#include "horon/train/replica.h"
#include "horon/train/start.h"

namespace horon {
class Session;
}

namespace horon::train {

// Of "train", of "test" (null: there is none), and of "validation" if the settings cut one off.
using DatasetMaker = std::function<std::shared_ptr<Dataset>(const std::string& split)>;

// What a program brings of its own; what is empty is found by its name in the settings.
struct Ingredients {
  DatasetMaker dataset;
  ModelMaker model;  // model/model.h
  OptimizerMaker optimizer;
  std::vector<CallbackMaker> callbacks;
};

// Trains a network on all ranks of the job that this process was started in (`horon run`, mpirun,
// srun, TF_CONFIG, or alone): input, gradients summed between ranks, checkpoints, resuming, logs.
// All processes call it alike: settings and data that differ are an error on all of them (exit code
// 11) before anything is built. Errors are thrown; result.interrupted after SIGTERM or SIGINT,
// which before the first step end the process at once, with 75 (make it before other threads start:
// they would take the signals). SIGUSR1 writes down the last operations. Parts for GPUs are looked
// for beside the program, or where HORON_PARTS says.
class Trainer {
 public:
  explicit Trainer(TrainConfig config, Ingredients ingredients = {})
      : config_(std::move(config)), ingredients_(std::move(ingredients)), given_(all_of(config_)) {}
  // Flags, a file and the run that goes on, as `horon train` takes them: start.h. Ranks compare
  // what each was told; the rest is rank 0's, which may have found it in the run's folder.
  explicit Trainer(Start start, Ingredients ingredients = {})
      : config_(std::move(start.config)),
        ingredients_(std::move(ingredients)),
        given_(std::move(start.given)),
        knobs_(std::move(start.knobs)),
        is_command_(start.is_command) {}
  TrainResult train() { return run(false); }
  TrainResult evaluate() { return run(true); }

 private:
  TrainResult run(bool only_evaluates);
  TrainResult run_replica(Session& session, const Accelerator& place, bool only_evaluates);
  void settle(const Session& session, bool only_evaluates);
  void prepare_evaluation(int ranks);
  TrainConfig config_;
  Ingredients ingredients_;
  Given given_;
  std::optional<Knobs> knobs_;  // none: those of the environment
  bool is_command_ = false;     // `horon train`
};

// One call for those who come from MoXing. Its arguments, with their meanings of old: run_mode in
// any case, batch_size of ONE replica, log_dir for checkpoints and logs. Restores from log_dir,
// then from checkpoint_path.
struct RunArguments {
  std::string run_mode = "TRAIN";  // or "EVAL"
  uint64_t batch_size = 128;       // of one replica
  std::string log_dir;
  uint64_t max_number_of_steps = 0;
  std::string checkpoint_path;
  uint64_t log_every_n_steps = 10;
  double save_model_secs = 0;  // wins over save_model_steps
  uint64_t save_model_steps = 0;
  TrainConfig config = {};  // everything else
};
TrainResult run(const DatasetMaker& input_fn, const ModelMaker& model_fn,
                const OptimizerMaker& optimizer_fn, const RunArguments& arguments);

}  // namespace horon::train
