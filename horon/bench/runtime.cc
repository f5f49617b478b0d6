#include "horon/bench/runtime.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/fd.h"
#include "horon/base/thread.h"
#include "horon/bench/ranks.h"
#include "horon/bench/record.h"
#include "horon/runtime/session.h"

namespace horon::bench {
namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The gradients of ResNet-50 in the order in which the backward pass makes them.
std::vector<TensorSpec> resnet50() {
  std::vector<uint64_t> sizes;
  const auto convolution = [&](uint64_t in, uint64_t out, uint64_t kernel) {
    sizes.insert(sizes.end(), {in * out * kernel * kernel, out, out});  // and its batch norm
  };
  convolution(3, 64, 7);
  uint64_t in = 64;
  const std::array<std::pair<int, uint64_t>, 4> stages = {{{3, 64}, {4, 128}, {6, 256}, {3, 512}}};
  for (const auto& [blocks, width] : stages) {
    for (int block = 0; block < blocks; ++block) {
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(in, 4 * width, 1);
      in = 4 * width;
    }
  }
  sizes.insert(sizes.end(), {uint64_t{2048} * 1000, 1000});
  std::vector<TensorSpec> specs;
  for (size_t i = sizes.size(); i-- > 0;) {
    TensorSpec spec;
    spec.name = fmt::format("parameter{}", i);
    spec.count = sizes[i];
    specs.push_back(spec);
  }
  return specs;
}

class Bench {
 public:
  Bench(Session& session, int rounds)
      : rounds_(rounds),
        is_traced_(!session.job_settings().text("timeline").empty()),
        runtime_(session.runtime()) {}

  nlohmann::json run() {
    named();
    buckets();
    if (!is_traced_) timeline();
    same_traffic();
    thousand();
    if (runtime_.size() == 2) idle();
    return result_;
  }

 private:
  // The time of the slowest rank.
  double slowest(double seconds) {
    std::array<double, 1> value = {seconds};
    runtime_.world().all_reduce(view_of(value), {.op = ReduceOp::kMax});
    return value[0];
  }

  void named() {
    std::array<float, 1> value = {1.0F};
    std::vector<double> times;
    for (int i = 0; i < 50 * rounds_; ++i) {
      value[0] = 1.0F;
      const Stopwatch watch;
      runtime_.run_all_reduce("metric", view_of(value));
      times.push_back(watch.seconds());
    }
    result_["named_4B_p50_us"] = slowest(median(times)) * 1e6;
  }

  // One step of all gradients, against one all-reduce of as many bytes on the same heap.
  void buckets() {
    const std::vector<TensorSpec> specs = resnet50();
    const BucketMemory memory = runtime_.allocate_buckets(specs);
    uint64_t total = 0;
    for (const OwnedBuffer& bucket : memory.buckets) total += bucket.view().count;
    const OwnedBuffer single = runtime_.world().allocate(total, DType::kF32);
    for (float& value : single.as<float>()) value = 0.0F;
    for (const OwnedBuffer& bucket : memory.buckets)
      for (float& value : bucket.as<float>()) value = 0.0F;
    std::vector<double> steps;
    std::vector<double> plain;
    const RuntimeCounters before = runtime_.counters();
    for (int round = 0; round < rounds_ + 2; ++round) {
      steps.push_back(slowest(step(specs, memory.views)));
      runtime_.world().barrier();
      const Stopwatch watch;
      runtime_.world().all_reduce(single.view());
      plain.push_back(slowest(watch.seconds()));
    }
    const RuntimeCounters after = runtime_.counters();
    const double per_step = 1.0 / (rounds_ + 2);
    steps.erase(steps.begin(), steps.begin() + 2);
    plain.erase(plain.begin(), plain.begin() + 2);
    result_["tensors"] = specs.size();
    result_["megabytes"] = static_cast<double>(total) * 4e-6;
    result_["resnet50_buckets_ms"] = median(steps) * 1e3;
    result_["resnet50_single_ms"] = median(plain) * 1e3;
    result_["resnet50_buckets_over_single"] = median(steps) / median(plain);
    result_["bytes_copied_per_step"] =
        static_cast<double>(after.bytes_copied - before.bytes_copied) * per_step;
    result_["control_messages_per_step"] =
        static_cast<double>(after.control_messages - before.control_messages) * per_step;
  }

  // The same number of bytes over all ranks together: 8 ranks have one model each, 2
  // ranks four. (One model of 2 ranks would fit into a large cache, and flatter them.)
  void same_traffic() {
    std::vector<TensorSpec> specs;
    for (int copy = 0; copy < std::max(1, 8 / runtime_.size()); ++copy) {
      for (TensorSpec spec : resnet50()) {
        spec.name += fmt::format("/{}", copy);
        specs.push_back(std::move(spec));
      }
    }
    const BucketMemory memory = runtime_.allocate_buckets(specs);
    for (const OwnedBuffer& bucket : memory.buckets)
      for (float& value : bucket.as<float>()) value = 0.0F;
    std::vector<double> times;
    for (int round = 0; round < rounds_ / 3 + 3; ++round) {
      const double time = slowest(step(specs, memory.views));
      if (round >= 2) times.push_back(time);
    }
    result_["same_traffic_ms"] = median(times) * 1e3;
  }

  // The same step with and without a timeline, in blocks that take turns.
  void timeline() {
    const std::vector<TensorSpec> specs = resnet50();
    const BucketMemory memory = runtime_.allocate_buckets(specs);
    const TempFolder folder("horon-bench");
    std::vector<double> off;
    std::vector<double> on;
    for (int block = 0; block < std::max(4, rounds_ / 2); ++block) {
      const bool traced = block % 2 == 1;
      if (traced) runtime_.start_timeline(fmt::format("{}/{}", folder.path(), block));
      for (int i = 0; i < 10; ++i)
        (traced ? on : off).push_back(slowest(step(specs, memory.views)));
      if (traced) runtime_.stop_timeline();
    }
    result_["timeline_overhead_percent"] = 100.0 * (median(on) / median(off) - 1.0);
  }

  double step(const std::vector<TensorSpec>& specs, const std::vector<BufferView>& views) {
    runtime_.world().barrier();
    const Stopwatch watch;
    std::vector<Work> works;
    works.reserve(specs.size());
    for (size_t i = 0; i < specs.size(); ++i)
      works.push_back(runtime_.all_reduce(specs[i].name, views[i]));
    for (const Work& work : works) work.wait();
    return watch.seconds();
  }

  // In the caller's memory, not in our buckets.
  void thousand() {
    std::vector<std::vector<float>> data(1000, std::vector<float>(256, 1.0F));
    std::vector<TensorSpec> specs(1000);
    std::vector<BufferView> views;
    for (size_t i = 0; i < specs.size(); ++i) {
      specs[i].name = fmt::format("small{}", i);
      specs[i].count = 256;
      views.push_back(view_of(data[i]));
    }
    runtime_.allocate_buckets(specs);  // replaces the declared tensors
    std::vector<double> times;
    for (int round = 0; round < rounds_ + 3; ++round) {
      const double time = slowest(step(specs, views));
      if (round >= 3) times.push_back(time);
    }
    result_["thousand_1KB_ms"] = median(times) * 1e3;
  }

  void idle() {
    runtime_.world().barrier();
    const double before = cpu_seconds();
    const Stopwatch watch;
    std::this_thread::sleep_for(std::chrono::seconds(2));  // this is the measurement
    result_["idle_cpu_percent"] = 100.0 * slowest((cpu_seconds() - before) / watch.seconds());
  }

  int rounds_;
  bool is_traced_;  // all the time, so there is nothing to compare with
  Runtime& runtime_;
  nlohmann::json result_ = nlohmann::json::object();
};

nlohmann::json measure(int ranks, int rounds) {
  RankJob job;
  job.ranks = ranks;
  job.arguments = {"bench", "runtime-rank"};
  return nlohmann::json::parse(run_ranks(job, nlohmann::json({{"rounds", rounds}}).dump()));
}

}  // namespace

Results run_runtime(bool quick) {
  const int rounds = quick ? 10 : 60;
  const nlohmann::json two = measure(2, rounds);
  const nlohmann::json eight = measure(8, quick ? 3 : 15);
  nlohmann::json summary;
  for (const char* key : {"named_4B_p50_us", "resnet50_buckets_over_single",
                          "bytes_copied_per_step", "control_messages_per_step",
                          "timeline_overhead_percent", "thousand_1KB_ms", "idle_cpu_percent"})
    if (two.contains(key)) summary[key] = two[key];
  summary["eight_over_two_ranks_per_byte"] =
      eight["same_traffic_ms"].get<double>() / two["same_traffic_ms"].get<double>();
  return {{{"2", two}, {"8", eight}}, summary};
}

void run_runtime_rank(const RankOptions& options) {
  Membership membership;
  membership.rank = options.rank;
  membership.size = options.size;
  membership.store = make_file_store(options.store);
  const Deadline soon = Deadline::after(std::chrono::seconds(30));
  const auto plan = nlohmann::json::parse(membership.store->get("plan", soon));
  const std::vector<int> cores = usable_cores();
  if (static_cast<size_t>(options.size) <= cores.size())
    pin_to_core(cores[static_cast<size_t>(options.rank)]);
  SessionOptions session_options;
  JobSettings& settings = session_options.job_settings;
  if (const std::string path = settings.text("timeline"); !path.empty())
    settings.set("timeline", fmt::format("{}.{}", path, options.size), "bench");
  Session session(membership, 0, session_options);
  Bench bench(session, plan["rounds"].get<int>());
  const nlohmann::json result = bench.run();
  if (session.is_first()) membership.store->set("result", result.dump(), soon);
}

}  // namespace horon::bench
