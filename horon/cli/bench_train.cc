#include "horon/cli/bench_train.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/part.h"
#include "horon/base/thread.h"
#include "horon/cli/record.h"
#include "horon/file/file.h"
#include "horon/train/open.h"

namespace horon::cli {
namespace {

struct TrainBenchOptions {
  bool quick = false;
  std::string device = "cpu";
  std::string json;
  std::string peers;
  std::string peer_script = "benchmarks/peers/ddp_peer.py";
};

double median(const nlohmann::json& times) { return cli::median(times.get<std::vector<double>>()); }

// Round by round: what disturbs a round disturbs both.
Spread ratios_of(const nlohmann::json& times, const std::string& a, const std::string& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < times.at(a).size(); ++i)
    ratios.push_back(times[a][i].get<double>() / times[b][i].get<double>());
  return spread_of(ratios);
}

std::string first_of(const nlohmann::json& times) {
  return times.contains("constant") ? "constant" : "alone";
}

class Bench {
 public:
  explicit Bench(const TrainBenchOptions& options) : options_(options) {}

  // The same step on a GPU, ours and LibTorch's own loop.
  void run_gpu() {
    const int rounds = options_.quick ? 8 : 30;
    struct Case {
      const char* name;
      const char* model;
      int image_size;
      const char* dtype;
    };
    for (const Case& one : {Case{"resnet50_bf16", "resnet_v1_50", 224, "bf16"},
                            Case{"resnet50_f32", "resnet_v1_50", 224, "f32"},
                            Case{"resnet20_bf16", "resnet_v1_20", 32, "bf16"}}) {
      const auto times = measure(1, {{"what", "libtorch"},
                                     {"model", one.model},
                                     {"batch", 256},
                                     {"image_size", one.image_size},
                                     {"classes", one.image_size == 32 ? 10 : 1000},
                                     {"dtype", one.dtype},
                                     {"device", "cuda"},
                                     {"rounds", rounds},
                                     {"threads", 1}});
      keep(fmt::format("gpu_step_over_libtorch_{}", one.name), times, "alone", "libtorch");
      const std::string speed = fmt::format("gpu_images_per_s_{}", one.name);
      summary[speed] = 256 / median(times["alone"]);
      std::cout << fmt::format("{:<34} {:.0f}\n", speed, summary[speed].get<double>());
    }
  }

  void run() {
    const int rounds = options_.quick ? 8 : 30;
    const int cores = static_cast<int>(usable_cores().size());
    // Two ranks of one thread; what two busy cores take from each other is in both.
    const auto scaling = measure_steadily(2, {{"what", "scaling"},
                                              {"model", "resnet_v1_50"},
                                              {"batch", 64},
                                              {"rounds", rounds},
                                              {"threads", 1}});
    keep("scaling_efficiency_2", scaling, "alone", "together");
    const auto bare = measure(1, {{"what", "libtorch"},
                                  {"model", "resnet_v1_50"},
                                  {"batch", 64},
                                  {"rounds", rounds},
                                  {"threads", 1}});
    keep("step_over_libtorch", bare, "alone", "libtorch");
    const auto input = measure(1, {{"what", "input"},
                                   {"model", "resnet_v1_20"},
                                   {"batch", 128},
                                   {"rounds", 2 * rounds},
                                   {"threads", cores}});
    keep("real_input_over_constant_batch", input, "real", "constant");
    const auto exact = measure(1, {{"what", "exact"},
                                   {"model", "resnet_v1_50"},
                                   {"batch", 128},
                                   {"rounds", rounds / 2},
                                   {"threads", 1}});
    keep("exact_over_fast_step", exact, "exact", "alone");
    const auto small = measure(1, {{"what", "exact"},
                                   {"model", "resnet_v1_20"},
                                   {"batch", 128},
                                   {"rounds", rounds},
                                   {"threads", 1}});
    keep("exact_over_fast_step_resnet20", small, "exact", "alone");
    if (!options_.peers.empty()) peers(rounds);
  }

  nlohmann::json results = nlohmann::json::object();
  nlohmann::json summary = nlohmann::json::object();

 private:
  nlohmann::json measure(int ranks, nlohmann::json plan) {
    const std::string out = folder_.path() + "/out.json";
    plan["out"] = out;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    run_program({program, "run", "-np", std::to_string(ranks), program, "bench", "train-rank",
                 plan.dump()});
    return nlohmann::json::parse(file::read(out));
  }

  // More rounds until the same thing measured twice is the same within half the margin.
  nlohmann::json measure_steadily(int ranks, const nlohmann::json& plan) {
    nlohmann::json times = measure(ranks, plan);
    for (int more = 0; more < kMostRepeats; ++more) {
      const Spread same = ratios_of(times, first_of(times), "again");
      if (same.high - same.low <= kMargin) break;
      const nlohmann::json fresh = measure(ranks, plan);
      for (auto& [name, seconds] : times.items())
        seconds.insert(seconds.end(), fresh[name].begin(), fresh[name].end());
    }
    return times;
  }

  // The ratio of medians; between which values it lies, and the same thing measured twice.
  void keep(const std::string& key, const nlohmann::json& times, const char* a, const char* b) {
    const std::string first = first_of(times);
    const Spread found = ratios_of(times, a, b);
    const Spread same = ratios_of(times, first, "again");
    summary[key] = median(times[a]) / median(times[b]);
    results[key] = {{"ratio", summary[key]},
                    {"spread", {found.low, found.high}},
                    {"same_twice", median(times[first]) / median(times["again"])},
                    {"same_twice_spread", {same.low, same.high}},
                    {"rounds", times[first].size()},
                    {"times", times}};
    std::cout << fmt::format(
                     "{:<34} {:.3f} [{:.3f}, {:.3f}]  (the same twice: {:.3f} [{:.3f}, {:.3f}], {} "
                     "rounds)\n",
                     key, summary[key].get<double>(), found.low, found.high,
                     results[key]["same_twice"].get<double>(), same.low, same.high,
                     times[first].size())
              << std::flush;
  }

  void peers(int rounds) {
    const std::string out = folder_.path() + "/peer.json";
    run_program({options_.peers, options_.peer_script, std::to_string(rounds), out});
    const auto times = nlohmann::json::parse(file::read(out));
    keep("ddp_scaling_efficiency_2", times, "alone", "together");
  }

  static constexpr double kMargin = 0.03;  // that scaling is promised with
  static constexpr int kMostRepeats = 6;
  TrainBenchOptions options_;
  TempFolder folder_;
};

}  // namespace

void add_bench_train(CLI::App& bench, Globals& globals) {
  auto* train = bench.add_subcommand(
      "train", "Steps of training: on two ranks, against bare LibTorch, with real input, exact");
  auto options = std::make_shared<TrainBenchOptions>();
  train->add_flag("--quick", options->quick, "fewer rounds");
  train->add_option("--device", options->device, "cpu, or cuda: a step on a GPU against LibTorch's")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  train->add_option("--json", options->json, "write the record to this file");
  train->add_option("--peers", options->peers,
                    "a Python with torch (`make bench-peers` makes one): DDP beside it");
  train->add_option("--peer-script", options->peer_script)->capture_default_str();
  add_knob_flags(*train, globals);
  train->callback([options, &globals] {
    globals.export_to_ranks();
    check_peers(options->peers, options->peer_script);
    train::open_trainer(part_folders(globals.knobs().text("parts")));  // missing: said once
    check_writable(options->json);
    Bench run(*options);
    if (options->device == "cpu") {
      run.run();
    } else {
      run.run_gpu();
    }

    if (!options->json.empty())
      write_file(options->json, make_record(run.results, run.summary).dump(1) + "\n");
  });

  auto* rank = bench.add_subcommand("train-rank", "")->group("");  // started by the above
  auto plan = std::make_shared<std::string>();
  rank->add_option("plan", *plan)->required();
  rank->callback([plan, &globals] {
    const auto part = train::open_trainer(part_folders(globals.knobs().text("parts")));
    globals.exit_code = part->function<int(const char*)>("horon_train_bench")(plan->c_str());
  });
}

}  // namespace horon::cli
