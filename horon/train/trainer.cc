// The replicas of one process.
#include "horon/train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/text.h"
#include "horon/train/agree.h"
#include "horon/train/run_rank.h"

namespace horon::train {
namespace {

Accelerator find_accelerator(DeviceChoice wanted, const JobSettings& job_settings) {
  const bool by_itself = wanted == DeviceChoice::kAuto;
  if (wanted == DeviceChoice::kCpu || (by_itself && !has_cuda())) return {};
  try {
    return open_accelerator(part_folders(job_settings.text("parts")), 0);
  } catch (const UsageError& error) {
    if (!by_itself) throw;
    fmt::print(stderr, "horon: LibTorch has a GPU, but Horon cannot use it: {}\n", error.what());
    return {};
  }
}

// What other ranks say of a rank that failed is less than what it says itself.
void rethrow_first(const std::vector<std::exception_ptr>& failures) {
  std::exception_ptr first;
  for (const std::exception_ptr& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const PeerLostError&) {
      if (!first) first = failure;
    } catch (const TimeoutError&) {
      if (!first) first = failure;
    } catch (...) {
      std::rethrow_exception(failure);
    }
  }
  if (first) std::rethrow_exception(first);
}

// What the bits of a result depend on, besides the settings.
std::map<std::string, std::string> platform_traits() {
  std::ifstream info("/proc/cpuinfo");
  std::string kind;
  for (std::string line; std::getline(info, line) && !line.empty();) {
    if (line.starts_with("vendor_id") || line.starts_with("cpu family"))
      kind += line.substr(std::min(line.find(':') + 1, line.size()));
  }
  return {{"LibTorch", torch_kind()}, {"kind of CPU", std::string(trim(kind))}};
}

// As it was typed, for people who want to go on.
std::string own_command() {
  std::ifstream file("/proc/self/cmdline");
  std::string line;
  for (std::string word; std::getline(file, word, '\0');) line += (line.empty() ? "" : " ") + word;
  return line.empty() ? "the same program" : line;
}

}  // namespace

// All processes go on with the same settings, or none does.
void Trainer::settle(const Session& session, bool only_evaluates) {
  if (session.size() == 1) return;
  Terms terms{{}, platform_traits()};
  for (const auto& [name, value] : given_) terms.given[name] = get_field(config_, name);
  terms.given["what is done"] = only_evaluates ? "evaluate" : "train";
  const AgreedTerms agreement = agree(*session.store(), session.rank(), session.size(), config_,
                                      terms, session.job_settings().duration("start_timeout"));
  config_ = agreement.config;
  if (session.is_first() && !agreement.warning.empty())
    fmt::print(stderr, "horon: {}\n", agreement.warning);
}

// How a model was trained does not matter when it is only evaluated.
void Trainer::prepare_evaluation(int ranks) {
  config_.reduction = Reduction::kFast;
  config_.sync_batch_norm = false;
  config_.batch_size_per_replica = 0;
  config_.batch_size = std::max(config_.batch_size, static_cast<uint64_t>(ranks));
  config_.skip_eval = false;
}

TrainResult Trainer::run_replica(Session& session, const Accelerator& accelerator,
                                 bool only_evaluates) {
  session.connect(accelerator.runtime);
  RankTask job{config_, session};
  if (session.signals() != nullptr) job.stop = session.signals()->token();
  job.only_evaluates = only_evaluates;
  job.replicas_here = replicas_of(config_);
  job.ingredients = &ingredients_;
  if (!is_command_) job.program = own_command();
  if (!accelerator.is_cpu())
    job.accelerator = open_accelerator(part_folders(session.job_settings().text("parts")),
                                       session.local_rank(), accelerator.runtime);
  return run_rank(std::move(job));
}

// Each replica is a rank of its own: 2 processes of 2 are 4 ranks.
TrainResult Trainer::run(bool only_evaluates) {
  // LibTorch 2.15's bf16 convolutions were seen to end with SIGILL (tilezero) on a CPU with AMX.
  if (config_.dtype == DType::kBF16) setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", 0);
  SessionOptions options;
  if (job_settings_) options.job_settings = *job_settings_;
  options.takes_signals = true;
  options.connects = false;
  Session session(options);
  settle(session, only_evaluates);
  const int here = replicas_of(config_);
  if (only_evaluates) prepare_evaluation(session.size() * here);
  check_config(config_, session.size() * here);
  const Accelerator accelerator = find_accelerator(config_.device, session.job_settings());
  if (config_.sync_batch_norm && !accelerator.is_cpu() &&
      here > accelerator.runtime->device_count())
    throw UsageError(fmt::format(
        "--sync_batch_norm with {} replicas of a process on {} GPU(s): LibTorch has one "
        "backward thread for each; start processes instead",
        here, accelerator.runtime->device_count()));
  std::vector<std::unique_ptr<Session>> replicas;
  for (int i = 0; i < here && here > 1; ++i) replicas.push_back(session.replica(i, here));
  std::vector<TrainResult> results(static_cast<size_t>(here));
  std::vector<std::exception_ptr> failures(static_cast<size_t>(here));
  const auto run_one = [&](size_t i) {
    try {
      results[i] = run_replica(here > 1 ? *replicas[i] : session, accelerator, only_evaluates);
    } catch (...) {
      failures[i] = std::current_exception();
    }
    if (here > 1) replicas[i].reset();  // other replicas get an error instead of waiting
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < results.size(); ++i) others.emplace_back([&, i] { run_one(i); });
    run_one(0);
  }
  rethrow_first(failures);
  return results[0];
}

TrainResult run(const DatasetMaker& input_fn, const ModelMaker& model_fn,
                const OptimizerMaker& optimizer_fn, const RunArguments& arguments) {
  TrainConfig config = arguments.config;
  set_field(config, "run_mode", arguments.run_mode, "run_mode");
  config.batch_size_per_replica = arguments.batch_size;
  config.model_dir = arguments.log_dir;
  config.max_number_of_steps = arguments.max_number_of_steps;
  config.checkpoint_path = arguments.checkpoint_path;
  config.log_every_n_steps = arguments.log_every_n_steps;
  config.save_checkpoints_secs = arguments.save_model_secs;
  config.save_checkpoints_steps = arguments.save_model_secs > 0 ? 0 : arguments.save_model_steps;
  Trainer trainer(config, {input_fn, model_fn, optimizer_fn, {}});
  return config.run_mode == RunMode::kTrain ? trainer.train() : trainer.evaluate();
}

}  // namespace horon::train
