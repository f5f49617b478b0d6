#include "horon/bench/train_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/time.h"
#include "horon/data/open_dataset.h"
#include "horon/data/pipeline.h"
#include "horon/file/file.h"
#include "horon/runtime/session.h"
#include "horon/runtime/trace.h"
#include "horon/train/bare_loop.h"
#include "horon/train/step.h"

namespace horon::bench {
namespace {

using train::Accelerator;
using train::BareLoop;
using train::GradientSync;
using train::ModelShape;
using train::Optimizer;
using train::Replica;
using train::Shard;
using train::TrainConfig;

// A fixed batch of random images.
struct FixedBatch {
  std::vector<float> pixels;
  OwnedBuffer there;  // copy on the GPU
  std::vector<int64_t> labels;
  std::vector<uint64_t> numbers;
  FixedBatch(uint64_t count, const ModelShape& shape, const Accelerator& accelerator)

      : pixels(count * 3 * static_cast<uint64_t>(shape.image_size * shape.image_size)) {
    for (size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<float>(i * 2654435761U % 1000) * 0.002F - 1.0F;
    for (uint64_t i = 0; i < count; ++i) {
      labels.push_back(static_cast<int64_t>(i) % shape.classes);
      numbers.push_back(i);
    }
    if (accelerator.is_cpu()) return;
    there = accelerator.runtime->allocate(pixels.size(), DType::kF32, accelerator.device.index);
    accelerator.math->copy(there.view().data, pixels.data(), pixels.size() * sizeof(float));
  }
  // Splits the batch into logical shards.
  std::vector<Shard> shards(uint64_t parts) const {
    std::vector<Shard> all;
    const uint64_t each = pixels.size() / labels.size();
    const float* data =
        there.view().data == nullptr ? pixels.data() : static_cast<const float*>(there.view().data);
    for (uint64_t part = 0; part < parts; ++part) {
      const Range range = cut(labels.size(), parts, part);
      all.push_back(
          {part,
           {data + range.first * each, std::span(labels).subspan(range.first, range.size()),
            std::span(numbers).subspan(range.first, range.size()), 0}});
    }
    return all;
  }
};

// A training step over one runtime: gradients and update.
class Steps {
 public:
  Steps(const TrainConfig& config, Runtime& runtime, Replica& replica,
        const Accelerator& accelerator)
      : replica_(replica),
        sync_(config.reduction == Reduction::kExact
                  ? train::make_exact_sync(runtime, replica, config.logical_shards, accelerator)
                  : train::make_fast_sync(runtime, replica, accelerator)),
        optimizer_(train::make_optimizer(config, sync_->slices(), accelerator)) {}
  void step(const std::vector<Shard>& shards, uint64_t global) {
    compute_gradients(replica_, *sync_, {{{shards, global}}});
    optimizer_->step(sync_->slices(), 1e-4);
  }
  const std::vector<train::Slice>& slices() const { return sync_->slices(); }

 private:
  Replica& replica_;
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<Optimizer> optimizer_;
};

// The job's settings for a session beside the job's, whose timeline has files of its own.
JobSettings settings_beside(const Session& session, const std::string& name) {
  JobSettings settings = session.job_settings();
  if (const std::string path = settings.text("timeline"); !path.empty())
    settings.set("timeline", fmt::format("{}.{}", path, name), "bench");
  return settings;
}

// All ranks of the job once more.
std::unique_ptr<Session> connect_again(const Session& session, const JobSettings& settings,
                                       const Accelerator& accelerator) {
  Membership membership;
  membership.rank = session.rank();
  membership.size = session.size();
  membership.store = session.store();
  SessionOptions options;
  options.job_settings = settings;
  options.device = accelerator.runtime;
  return std::make_unique<Session>(membership, 0, options);
}

// This rank by itself. What the job says of backends is not meant for it.
std::unique_ptr<Session> alone(const Session& session, const Accelerator& accelerator,
                               const std::string& name = "alone") {
  SessionOptions options;
  options.job_settings = settings_beside(session, fmt::format("{}{}", name, session.rank()));
  options.job_settings.set("backend", "auto", "bench");
  options.job_settings.set("algorithm", "", "bench");
  options.device = accelerator.runtime;
  return std::make_unique<Session>(Membership{}, 0, options);
}

Accelerator accelerator_for(const nlohmann::json& plan) {
  if (plan.value("device", "cpu") == "cpu") return {};
  std::string why;
  if (!train::has_cuda(&why)) throw UsageError("--device cuda: " + why);
  return train::open_accelerator(part_folders(""), 0);
}

TrainConfig config_for(const nlohmann::json& plan) {
  TrainConfig config;
  config.model = plan.at("model").get<std::string>();
  train::set_field(config, "dtype", plan.value("dtype", "f32"));
  return config;
}

// When the GPU came to the first and the last gradient of each backward pass. Everything else is
// the other sync's.
class WatchedSync final : public GradientSync {
 public:
  WatchedSync(std::unique_ptr<GradientSync> inner, const Accelerator& accelerator)
      : inner_(std::move(inner)), accelerator_(accelerator) {}
  const std::vector<train::Slice>& slices() const override { return inner_->slices(); }
  void begin(const train::StepPlan& plan) override {
    marks_.clear();
    inner_->begin(plan);
  }
  void begin_shard(size_t pass, const Shard& shard) override { inner_->begin_shard(pass, shard); }
  void ready(size_t i, const float* gradient) override {
    inner_->ready(i, gradient);
    marks_.push_back(accelerator_.math->mark());
    if (marks_.size() > 1) return;
    watcher_ = std::jthread([this, first = marks_.front()] {
      accelerator_.math->wait(first);
      begun = trace_now();
    });
  }
  // Before waiting for the score, which is queued behind the backward pass.
  void end_backward() {
    watcher_.join();
    accelerator_.math->wait(marks_.back());
    ended = trace_now();
  }
  void end_shard(const train::Score& score) override { inner_->end_shard(score); }
  void end_pass(size_t pass) override { inner_->end_pass(pass); }
  train::StepSums finish(const train::Wishes& wishes) override { return inner_->finish(wishes); }
  void abandon() override { inner_->abandon(); }

  int64_t begun = 0;  // ns, as in timelines
  int64_t ended = 0;

 private:
  std::unique_ptr<GradientSync> inner_;
  Accelerator accelerator_;
  std::vector<std::shared_ptr<void>> marks_;
  std::jthread watcher_;
};

// Transfers of a timeline: begin and end in ns, bytes.
struct Transfer {
  int64_t begun;
  int64_t ended;
  double bytes;
};
std::vector<Transfer> read_transfers(const std::string& path) {
  std::vector<Transfer> all;
  std::istringstream lines(file::read(path));
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event.value("cat", "") != "all_reduce") continue;
    const auto begun = static_cast<int64_t>(event.at("ts").get<double>() * 1e3);
    all.push_back({begun, begun + static_cast<int64_t>(event.at("dur").get<double>() * 1e3),
                   event.at("args").at("bytes").get<double>()});
  }
  return all;
}

// The part of the time of all transfers of gradients that lies inside a backward pass on the GPU,
// step by step, from the timeline of this rank.
nlohmann::json measure_overlap(const nlohmann::json& plan, const Session& job,
                               const Accelerator& accelerator) {
  const TrainConfig config = config_for(plan);
  const ModelShape shape{.classes = plan.at("classes"), .image_size = plan.at("image_size")};
  Replica replica(config, shape, {.threads = 1, .device = accelerator.device});
  const auto batch = plan.at("batch").get<uint64_t>();
  const FixedBatch fixed(batch, shape, accelerator);
  JobSettings settings = job.job_settings();
  if (settings.origin("bucket_bytes") == "default")
    settings.set("bucket_bytes", std::to_string(plan.at("bucket_bytes").get<uint64_t>()), "bench");
  const std::string timeline = plan.at("out").get<std::string>() + ".timeline";
  settings.set("timeline", timeline, "bench");
  const auto ranks = static_cast<uint64_t>(job.size());
  std::vector<std::pair<int64_t, int64_t>> passes;
  {
    const auto session = connect_again(job, settings, accelerator);
    WatchedSync sync(train::make_fast_sync(session->runtime(), replica, accelerator), accelerator);
    for (int round = -3; round < plan.at("rounds").get<int>(); ++round) {
      const train::StepPlan step{{{fixed.shards(1), batch * ranks}}};
      sync.begin(step);
      for (const Shard& shard : step.passes[0].shards) {
        sync.begin_shard(0, shard);
        replica.forward(shard.samples);
        replica.backward(step.divisor(0), [&](size_t i, const float* g) { sync.ready(i, g); });
        sync.end_backward();
        sync.end_shard(replica.score());
      }
      sync.end_pass(0);
      sync.finish({});
      if (round >= 0) passes.emplace_back(sync.begun, sync.ended);
    }
  }
  const auto transfers = read_transfers(fmt::format("{}.{}", timeline, job.rank()));
  nlohmann::json result;
  for (size_t i = 0; i < passes.size(); ++i) {
    const auto [begun, ended] = passes[i];
    const int64_t next = i + 1 < passes.size() ? passes[i + 1].first : INT64_MAX;
    double inside = 0;
    double all = 0;
    double bytes = 0;
    for (const Transfer& one : transfers) {
      if (one.begun < begun - 1'000'000 || one.begun >= next - 1'000'000) continue;
      all += static_cast<double>(one.ended - one.begun);
      bytes += one.bytes;
      inside += static_cast<double>(
          std::max<int64_t>(0, std::min(one.ended, ended) - std::max(one.begun, begun)));
    }
    result["inside"].push_back(inside / std::max(all, 1.0));
    result["transfer_s"].push_back(all * 1e-9);
    result["backward_s"].push_back(static_cast<double>(ended - begun) * 1e-9);
    result["bytes"].push_back(bytes);
  }
  return result;
}

using Contenders = std::vector<std::pair<std::string, std::function<void()>>>;

// In turns, after a common start; seconds of each round.
nlohmann::json measure(Communicator& comm, int rounds, const Contenders& contenders,
                       const Accelerator& accelerator = {}) {
  nlohmann::json times;
  for (int round = -2; round < rounds; ++round) {  // two to warm up
    for (const auto& [name, body] : contenders) {
      comm.barrier();
      const Stopwatch watch;
      body();
      if (!accelerator.is_cpu()) accelerator.math->wait(accelerator.math->mark());
      if (round >= 0) times[name].push_back(watch.seconds());
    }
  }
  return times;
}

// Real batches from a pipeline, against the same batch again and again.
nlohmann::json measure_input(const nlohmann::json& plan, const Session& session,
                             Communicator& comm) {
  TrainConfig config = config_for(plan);
  const ModelShape shape;
  Replica replica(config, shape, {.threads = plan.at("threads").get<int>()});
  const auto batch = plan.at("batch").get<uint64_t>();
  const FixedBatch fixed(batch, shape, {});
  const auto self = alone(session, {});
  Steps steps(config, self->runtime(), replica, {});
  DatasetRequest request;
  request.name = "shapes10";
  PipelineOptions options;
  options.dataset = open_dataset(request);
  options.recipe = find_recipe("cifar", true, 32, 32);
  options.batch = batch;
  options.drops_remainder = true;
  Pipeline pipeline(options);
  return measure(
      comm, plan.at("rounds").get<int>(),
      {{"constant", [&] { steps.step(fixed.shards(1), batch); }},
       {"again", [&] { steps.step(fixed.shards(1), batch); }},
       {"real", [&] {
          const auto real = pipeline.next();
          steps.step(
              {{0, {static_cast<const float*>(real->pixels.data), real->labels, real->samples, 0}}},
              batch);
        }}});
}

// Gradients by the trainer's step and by a user's loop around a DistributedOptimizer; no updates.
nlohmann::json measure_wrapped(const nlohmann::json& plan, Session& session, Communicator& comm,
                               const Accelerator& accelerator) {
  const TrainConfig config = config_for(plan);
  const ModelShape shape{.classes = plan.at("classes"), .image_size = plan.at("image_size")};
  Replica replica(config, shape, {.threads = 1, .device = accelerator.device});
  const auto batch = plan.at("batch").get<uint64_t>();
  const FixedBatch fixed(batch, shape, accelerator);
  const auto own = connect_again(session, settings_beside(session, "trainer"), accelerator);
  const auto sync = train::make_fast_sync(own->runtime(), replica, accelerator);
  BareLoop loop(config, shape, accelerator.device, &session);
  const auto ranks = static_cast<uint64_t>(comm.size());
  const auto ours = [&] {
    compute_gradients(replica, *sync, {{{fixed.shards(1), batch * ranks}}});
  };
  return measure(comm, plan.at("rounds").get<int>(),
                 {{"alone", ours},
                  {"wrapped", [&] { loop.compute(fixed.shards(1)[0].samples); }},
                  {"again", ours}},
                 accelerator);
}

// All ranks over one way between hosts.
std::unique_ptr<Session> connect_over(const std::string& wire, const Session& session) {
  JobSettings settings = settings_beside(session, wire);
  settings.set("backend", wire == "gloo" ? "gloo" : "tcp", "bench");
  if (wire == "tcp_plain") settings.set("wire", "plain", "bench");
  return connect_again(session, settings, {});
}

// Steps over each way between hosts, against a lone rank's; and an all-reduce of as many bytes.
nlohmann::json measure_wires(const nlohmann::json& plan, const Session& session,
                             Communicator& comm) {
  const TrainConfig config = config_for(plan);
  const ModelShape shape;
  Replica replica(config, shape, {.threads = plan.at("threads").get<int>()});
  const auto batch = plan.at("batch").get<uint64_t>();
  const FixedBatch fixed(batch, shape, {});
  const auto self = alone(session, {});
  Steps lone(config, self->runtime(), replica, {});
  const auto ranks = static_cast<uint64_t>(comm.size());
  Contenders contenders = {{"alone", [&] { lone.step(fixed.shards(1), batch); }},
                           {"again", [&] { lone.step(fixed.shards(1), batch); }}};
  uint64_t count = 0;
  for (const auto& slice : lone.slices()) count += slice.count;
  OwnedBuffer gradients = OwnedBuffer::host(count, DType::kF32);
  std::vector<std::unique_ptr<Session>> wires;
  std::vector<std::unique_ptr<Steps>> steps;
  for (const auto& wire : plan.at("wires").get<std::vector<std::string>>()) {
    wires.push_back(connect_over(wire, session));
    steps.push_back(
        std::make_unique<Steps>(config, wires.back()->runtime(), replica, Accelerator{}));
    contenders.emplace_back(
        wire, [&, one = steps.back().get()] { one->step(fixed.shards(1), batch * ranks); });
    contenders.emplace_back(wire + "_all_reduce", [&, one = wires.back().get()] {
      one->world().all_reduce(gradients.view(), {});
    });
  }
  return measure(comm, plan.at("rounds").get<int>(), contenders);
}

nlohmann::json measure_steps(const nlohmann::json& plan, const Session& session, Communicator& comm,
                             const Accelerator& accelerator) {
  TrainConfig config = config_for(plan);
  const ModelShape shape{.classes = plan.value("classes", 10),
                         .image_size = plan.value("image_size", 32)};
  const std::string what = plan.at("what").get<std::string>();
  Replica replica(config, shape,
                  {.threads = plan.at("threads").get<int>(), .device = accelerator.device});
  const auto batch = plan.at("batch").get<uint64_t>();
  const FixedBatch fixed(batch, shape, accelerator);
  const auto self = alone(session, accelerator);
  Steps lone(config, self->runtime(), replica, accelerator);
  Contenders contenders = {{"alone", [&] { lone.step(fixed.shards(1), batch); }},
                           {"again", [&] { lone.step(fixed.shards(1), batch); }}};
  std::unique_ptr<Session> exact;
  std::unique_ptr<Steps> other;
  std::unique_ptr<BareLoop> bare;
  if (what == "scaling") {
    const auto ranks = static_cast<uint64_t>(session.size());
    other = std::make_unique<Steps>(config, session.runtime(), replica, accelerator);
    contenders.emplace_back("together",
                            [&, ranks] { other->step(fixed.shards(1), batch * ranks); });
  } else if (what == "exact") {
    config.reduction = Reduction::kExact;
    exact = alone(session, accelerator, "exact");
    other = std::make_unique<Steps>(config, exact->runtime(), replica, accelerator);
    contenders.emplace_back("exact",
                            [&] { other->step(fixed.shards(config.logical_shards), batch); });
  } else {
    bare = std::make_unique<BareLoop>(config, shape, accelerator.device);
    contenders.emplace_back("libtorch", [&] { bare->step(fixed.shards(1)[0].samples); });
  }
  return measure(comm, plan.at("rounds").get<int>(), contenders, accelerator);
}

}  // namespace

void run_train_steps(const std::string& text) {
  const auto plan = nlohmann::json::parse(text);
  const std::string what = plan.at("what");
  SessionOptions options;
  options.connects = false;
  Session session(options);
  const Accelerator accelerator = accelerator_for(plan);
  session.connect(accelerator.runtime);
  Communicator& comm = session.world();
  std::vector<int> all(static_cast<size_t>(comm.size()));
  std::iota(all.begin(), all.end(), 0);
  const auto clock =
      comm.sub_communicator(all);  // for barriers, separate from the measured operations
  nlohmann::json times;
  if (what == "input") {
    times = measure_input(plan, session, *clock);
  } else if (what == "wires") {
    times = measure_wires(plan, session, *clock);
  } else if (what == "wrapped") {
    times = measure_wrapped(plan, session, *clock, accelerator);
  } else if (what == "overlap") {
    times = measure_overlap(plan, session, accelerator);
  } else {
    times = measure_steps(plan, session, *clock, accelerator);
  }
  if (session.is_first()) file::write(plan.at("out").get<std::string>(), times.dump());
  clock->barrier();
}

}  // namespace horon::bench
