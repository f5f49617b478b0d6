#include "horon/bench/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/part.h"
#include "horon/base/thread.h"
#include "horon/bench/record.h"
#include "horon/file/file.h"
#include "horon/train/open.h"

namespace horon::bench {
namespace {

double median(const nlohmann::json& times) {
  return bench::median(times.get<std::vector<double>>());
}

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
  Bench(const TrainOptions& options, const Say& say) : options_(options), say_(say) {}

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
      say_(fmt::format("{:<34} {:.0f}", speed, summary[speed].get<double>()));
    }
    for (const int ranks : {1, 2}) {
      const auto times = measure(ranks, on_gpu({{"what", "wrapped"}, {"rounds", rounds}}));
      keep(fmt::format("gpu_distributed_optimizer_over_trainer_{}", ranks), times, "wrapped",
           "alone");
    }
    const auto overlap = measure(
        2, on_gpu({{"what", "overlap"}, {"rounds", rounds}, {"bucket_bytes", kOverlapBucket}}));
    const std::string key = "gpu_transfer_inside_backward_2";
    summary[key] = median(overlap.at("inside"));
    results[key] = overlap;
    say_(fmt::format("{:<34} {:.3f}  ({:.1f} ms of transfers, {:.1f} ms of backward pass)", key,
                     summary[key].get<double>(), 1e3 * median(overlap.at("transfer_s")),
                     1e3 * median(overlap.at("backward_s"))));
  }

  void run() {
    const int rounds = options_.quick ? 8 : 30;
    const int cores = static_cast<int>(usable_cores().size());
    // Two ranks of one thread each; both measurements include the contention of two busy cores.
    const auto scaling = measure_steadily(2, {{"what", "scaling"},
                                              {"model", "resnet_v1_50"},
                                              {"batch", 64},
                                              {"rounds", rounds},
                                              {"threads", 1}});
    keep("scaling_efficiency_2", scaling, "alone", "together");
    run_wires(rounds / 2);
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
  // The same over TCP, as between hosts. `_bound`: what is left if 1.2 times the all-reduce of all
  // gradients came on top of the step.
  void run_wires(int rounds) {
    std::vector<std::string> wires = {"tcp", "tcp_plain"};
    for (const PartStatus& part : probe_parts(part_folders("")))
      if (part.name == "gloo" && part.loads) wires.emplace_back("gloo");
    const auto times = measure(2, {{"what", "wires"},
                                   {"wires", wires},
                                   {"model", "resnet_v1_50"},
                                   {"batch", 64},
                                   {"rounds", rounds},
                                   {"threads", 1}});
    for (const std::string& wire : wires) {
      const std::string key = "scaling_efficiency_2_" + wire;
      keep(key, times, "alone", wire.c_str());
      const double share = median(times[wire + "_all_reduce"]) / median(times["alone"]);
      summary[key + "_bound"] = 1 - 1.2 * share;
      say_(fmt::format("{:<34} {:.3f}", key + "_bound", 1 - 1.2 * share));
    }
  }

  static constexpr uint64_t kOverlapBucket = 8U << 20;  // only the last bucket cannot overlap
  static nlohmann::json on_gpu(nlohmann::json plan) {
    plan.update({{"model", "resnet_v1_50"},
                 {"batch", 128},
                 {"image_size", 224},
                 {"classes", 1000},
                 {"dtype", "bf16"},
                 {"device", "cuda"},
                 {"threads", 1}});
    return plan;
  }

  nlohmann::json measure(int ranks, nlohmann::json plan) {
    const std::string out = folder_.path() + "/out.json";
    plan["out"] = out;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    run_program({program, "run", "-np", std::to_string(ranks), program, "bench", "train-rank",
                 plan.dump()});
    return nlohmann::json::parse(file::read(out));
  }

  // Repeats until two measurements of the same thing differ by less than half the margin.
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

  // The ratio of medians, its interval, and the ratio of two measurements of the same thing.
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
    say_(fmt::format("{:<34} {:.3f} [{:.3f}, {:.3f}]  (A/A: {:.3f} [{:.3f}, {:.3f}], {} rounds)",
                     key, summary[key].get<double>(), found.low, found.high,
                     results[key]["same_twice"].get<double>(), same.low, same.high,
                     times[first].size()));
  }

  void peers(int rounds) {
    const std::string out = folder_.path() + "/peer.json";
    run_program({options_.peers, options_.peer_script, std::to_string(rounds), out});
    const auto times = nlohmann::json::parse(file::read(out));
    keep("ddp_scaling_efficiency_2", times, "alone", "together");
  }

  static constexpr double kMargin = 0.03;  // tolerance of the promised scaling
  static constexpr int kMostRepeats = 6;
  TrainOptions options_;
  const Say& say_;
  TempFolder folder_;
};

}  // namespace

Results run_train(const TrainOptions& options, const Say& say) {
  Bench bench(options, say);
  if (options.device == "cpu") {
    bench.run();
  } else {
    bench.run_gpu();
  }
  return {bench.results, bench.summary};
}

int run_train_rank(const std::string& plan, const std::vector<std::string>& folders) {
  const auto part = train::open_trainer(folders);
  return part->function<int(const char*)>("horon_train_bench")(plan.c_str());
}

}  // namespace horon::bench
