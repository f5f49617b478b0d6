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

// Opens the data set of a split: "train", "test" (may return null: there is none), or "validation"
// if the settings ask for one.
using DatasetMaker = std::function<std::shared_ptr<Dataset>(const std::string& split)>;

// What a program supplies itself; an empty member is looked up by its name in the settings.
struct Ingredients {
  DatasetMaker dataset;
  ModelMaker model;  // model/model.h
  OptimizerMaker optimizer;
  std::vector<CallbackMaker> callbacks;
  // Compresses gradients on the wire (codec/codec.h), e.g. "fp16+feedback"; empty: f32. What it
  // keeps is part of the checkpoints. The same on all ranks; not with the exact reduction.
  std::string codec = {};
};

// Trains a network on all ranks of the job that started this process (`horon run`, mpirun, srun,
// TF_CONFIG, or alone): input, gradients summed over ranks, checkpoints, resuming, logs.
//
//   horon::Trainer trainer(config);
//   const horon::TrainResult result = trainer.train();
//
// All processes make the same calls: settings and data that differ are an error on all of them
// (exit code 11) before anything is built. Blocks until the run ends; throws Errors. After SIGTERM
// or SIGINT result.interrupted is true; before the first step they end the process at once with
// exit code 75. SIGUSR1 writes the last operations to a file. Make a Trainer before other threads
// start, or these would receive the signals. Parts for GPUs are searched beside the program, or in
// HORON_PARTS. One thread.
class Trainer {
 public:
  explicit Trainer(TrainConfig config, Ingredients ingredients = {})
      : config_(std::move(config)), ingredients_(std::move(ingredients)), given_(all_of(config_)) {}
  // With flags, a file and a run to resume, as `horon train` has them: start.h. Ranks compare what
  // each was given; the rest comes from rank 0, which may have found it in the run's folder.
  explicit Trainer(Start start, Ingredients ingredients = {})
      : config_(std::move(start.config)),
        ingredients_(std::move(ingredients)),
        given_(std::move(start.given)),
        job_settings_(std::move(start.job_settings)),
        is_command_(start.is_command) {}
  TrainResult train() { return run(false); }
  TrainResult evaluate() { return run(true); }

 private:
  TrainResult run(bool only_evaluates);
  TrainResult run_replica(Session& session, const Accelerator& accelerator, bool only_evaluates);
  void settle(const Session& session, bool only_evaluates);
  void prepare_evaluation(int ranks);
  TrainConfig config_;
  Ingredients ingredients_;
  Given given_;
  std::optional<JobSettings> job_settings_;  // none: from the environment
  bool is_command_ = false;                  // `horon train`
};

// One call for users of MoXing. The arguments have their meanings there: run_mode in any case,
// batch_size of ONE replica, log_dir for checkpoints and logs. Restores from log_dir, otherwise
// from checkpoint_path.
struct RunArguments {
  std::string run_mode = "TRAIN";  // or "EVAL"
  uint64_t batch_size = 128;       // of one replica
  std::string log_dir;
  uint64_t max_number_of_steps = 0;
  std::string checkpoint_path;
  uint64_t log_every_n_steps = 10;
  double save_model_secs = 0;  // takes precedence over save_model_steps
  uint64_t save_model_steps = 0;
  TrainConfig config = {};  // all other settings
};
TrainResult run(const DatasetMaker& input_fn, const ModelMaker& model_fn,
                const OptimizerMaker& optimizer_fn, const RunArguments& arguments);

}  // namespace horon::train
