#include "horon/train/bench.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/base/time.h"
#include "horon/data/pipeline.h"
#include "horon/file/file.h"
#include "horon/runtime/session.h"
#include "horon/train/gradient_sync.h"

namespace horon::train {
namespace {

// A fixed batch of random pictures.
struct FixedBatch {
  std::vector<float> pixels;
  OwnedBuffer there;  // the same on a GPU
  std::vector<int64_t> labels;
  std::vector<uint64_t> numbers;
  FixedBatch(uint64_t count, const ModelShape& shape, const Accelerator& place)

      : pixels(count * 3 * static_cast<uint64_t>(shape.image_size * shape.image_size)) {
    for (size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = static_cast<float>(i * 2654435761U % 1000) * 0.002F - 1.0F;
    for (uint64_t i = 0; i < count; ++i) {
      labels.push_back(static_cast<int64_t>(i) % shape.classes);
      numbers.push_back(i);
    }
    if (place.is_cpu()) return;
    there = place.runtime->allocate(pixels.size(), DType::kF32, place.device.index);
    place.math->copy(there.view().data, pixels.data(), pixels.size() * sizeof(float));
  }
  // Cut into logical shards.
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

// A training step over one communicator: gradients and update.
class Steps {
 public:
  Steps(const TrainConfig& config, std::unique_ptr<Communicator> comm, Replica& replica,
        const Accelerator& place)
      : runtime_(std::move(comm)),
        sync_(config.reduction == Reduction::kExact
                  ? make_exact_sync(runtime_, replica, config.logical_shards, place)
                  : make_fast_sync(runtime_, replica, place)),
        optimizer_(make_optimizer(config, sync_->slices(), place)) {}
  void step(const std::vector<Shard>& shards, uint64_t global) {
    sync_->step({shards}, {global}, {});
    optimizer_->step(sync_->slices(), 1e-4);
  }

 private:
  Runtime runtime_;
  std::unique_ptr<GradientSync> sync_;
  std::unique_ptr<Optimizer> optimizer_;
};

std::unique_ptr<Communicator> alone(const Accelerator& place) {
  BootstrapInfo info;
  info.device = place.runtime;
  return make_communicator(info);
}

Accelerator place_for(const nlohmann::json& plan) {
  if (plan.value("device", "cpu") == "cpu") return {};
  std::string why;
  if (!has_cuda(&why)) throw UsageError("--device cuda: " + why);
  return open_accelerator(part_folders(""), 0);
}

using Contenders = std::vector<std::pair<std::string, std::function<void()>>>;

// In turns, after a common start; seconds of each round.
nlohmann::json measure(Communicator& comm, int rounds, const Contenders& contenders,
                       const Accelerator& place = {}) {
  nlohmann::json times;
  for (int round = -2; round < rounds; ++round) {  // two to warm up
    for (const auto& [name, body] : contenders) {
      comm.barrier();
      const Stopwatch watch;
      body();
      if (!place.is_cpu()) place.math->wait(place.math->mark());
      if (round >= 0) times[name].push_back(watch.seconds());
    }
  }
  return times;
}

TrainConfig config_for(const nlohmann::json& plan) {
  TrainConfig config;
  config.model = plan.at("model").get<std::string>();
  set_field(config, "dtype", plan.value("dtype", "f32"));
  return config;
}

// Real batches from a pipeline, against the same batch again and again.
nlohmann::json measure_input(const nlohmann::json& plan, Communicator& comm) {
  TrainConfig config = config_for(plan);
  const ModelShape shape;
  Replica replica(config, shape, {.threads = plan.at("threads").get<int>()});
  const auto batch = plan.at("batch").get<uint64_t>();
  const FixedBatch fixed(batch, shape, {});
  Steps steps(config, alone({}), replica, {});
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

nlohmann::json measure_steps(const nlohmann::json& plan, std::unique_ptr<Communicator> world,
                             Communicator& comm) {
  TrainConfig config = config_for(plan);
  const ModelShape shape{.classes = plan.value("classes", 10),
                         .image_size = plan.value("image_size", 32)};
  const Accelerator place = place_for(plan);
  const std::string what = plan.at("what").get<std::string>();
  Replica replica(config, shape,
                  {.threads = plan.at("threads").get<int>(), .device = place.device});
  const auto batch = plan.at("batch").get<uint64_t>();
  const FixedBatch fixed(batch, shape, place);
  Steps lone(config, alone(place), replica, place);
  Contenders contenders = {{"alone", [&] { lone.step(fixed.shards(1), batch); }},
                           {"again", [&] { lone.step(fixed.shards(1), batch); }}};
  std::unique_ptr<Steps> other;
  std::unique_ptr<BareLoop> bare;
  if (what == "scaling") {
    const auto ranks = static_cast<uint64_t>(world->size());
    other = std::make_unique<Steps>(config, std::move(world), replica, place);
    contenders.emplace_back("together",
                            [&, ranks] { other->step(fixed.shards(1), batch * ranks); });
  } else if (what == "exact") {
    config.reduction = Reduction::kExact;
    other = std::make_unique<Steps>(config, alone(place), replica, place);
    contenders.emplace_back("exact",
                            [&] { other->step(fixed.shards(config.logical_shards), batch); });
  } else {
    bare = std::make_unique<BareLoop>(config, shape, place.device);
    contenders.emplace_back("libtorch", [&] { bare->step(fixed.shards(1)[0].samples); });
  }
  return measure(comm, plan.at("rounds").get<int>(), contenders, place);
}

}  // namespace

void run_bench(const std::string& text) {
  const auto plan = nlohmann::json::parse(text);
  const Session session;
  Communicator& comm = session.world();
  std::vector<int> all;
  for (int rank = 0; rank < comm.size(); ++rank) all.push_back(rank);
  const auto clock = comm.group(all);  // for the barriers, apart from what is measured
  const nlohmann::json times = plan.at("what") == "input"
                                   ? measure_input(plan, *clock)
                                   : measure_steps(plan, comm.group(all), *clock);
  if (session.is_first()) file::write(plan.at("out").get<std::string>(), times.dump());
  clock->barrier();
}

}  // namespace horon::train
