// The Trainer with one's own ingredients, callbacks. Ranks are threads here.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "horon/data/format/packed.h"
#include "horon/data/open_dataset.h"
#include "horon/train/run_rank.h"
#include "tests/train/on_ranks.h"

namespace horon::train {
namespace {

// A user's own model, with a loss of its own.
struct Tiny final : Model {
  torch::nn::Linear layer{nullptr};
  explicit Tiny(const ModelShape& shape)
      : layer(register_module(
            "layer", torch::nn::Linear(shape.channels * shape.image_size * shape.image_size,
                                       shape.classes))) {}
  torch::Tensor forward(torch::Tensor x) override { return layer(x.flatten(1)); }
};

struct Folder {
  static int next() {
    static std::atomic<int> count = 0;
    return ++count;
  }
  std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("horon_api_test_" + std::to_string(getpid()) + "_" + std::to_string(next()));
  Folder() { std::filesystem::remove_all(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

TrainConfig small_config(const Folder& folder) {
  TrainConfig config;
  config.train_samples = 120;
  config.batch_size = 20;
  config.train_epochs = 3;
  config.learning_rate = 0.01;
  config.model_dir = folder.path;
  config.device = DeviceChoice::kCpu;
  return config;
}

TrainResult train_on(int ranks, const TrainConfig& config, const Ingredients& ingredients) {
  TrainResult result;
  on_ranks(ranks, [&](std::unique_ptr<Communicator> comm) {
    Session session(std::move(comm));
    const TrainResult one = run_rank({config, session, {}, false, ranks, {}, &ingredients});
    if (session.is_first()) result = one;
  });
  return result;
}

// What the callbacks of a run are told, and in which order.
struct Recorder final : Callback {
  std::vector<std::string>& lines;
  int rank;
  Recorder(std::vector<std::string>& to, int mine) : lines(to), rank(mine) {}
  void note(const std::string& what) const {
    if (rank == 0) lines.push_back(what);
  }
  void on_begin(Moment&) override { note("begin"); }
  void on_step_begin(Moment& moment) override { note("step_begin " + std::to_string(moment.rate)); }
  void on_gradients(Moment&) override { note("gradients"); }
  void on_step_end(Moment& moment) override {
    note("step_end " + std::to_string(moment.state.step));
    moment.metrics["ranks"].sum += rank;  // 0, 1, 2: 1 on average
    moment.metrics["ranks"].count += 1;
  }
  void on_evaluated(Moment& moment) override {
    note("evaluated " + std::to_string(moment.averages["ranks"]));
  }
  void on_boundary(Moment&) override { note("boundary"); }
  void on_end(Moment&) override { note("end"); }
};

TEST(Trainer, CallsCallbacksInOrderAndStopsWhenTheyAsk) {
  const Folder folder;
  TrainConfig config = small_config(folder);
  config.learning_rate_strategy = "1:0.1,3:0.2";
  std::vector<std::string> lines;
  Ingredients ingredients;
  ingredients.model = [](const ModelShape& shape) { return std::make_shared<Tiny>(shape); };

  ingredients.callbacks.push_back(
      [&](int rank) { return std::make_unique<Recorder>(lines, rank); });
  // Only one rank wants to stop; all do.
  ingredients.callbacks.push_back(
      [](int rank) { return rank == 2 ? make_stop_at_step(8) : std::make_unique<Callback>(); });
  const TrainResult result = train_on(3, config, ingredients);
  EXPECT_EQ(result.steps, 8U);
  EXPECT_FALSE(result.interrupted);
  std::vector<std::string> wanted = {"begin"};
  for (int step = 1; step <= 8; ++step) {
    wanted.emplace_back(step <= 6 ? "step_begin 0.100000" : "step_begin 0.200000");
    wanted.emplace_back("gradients");
    wanted.emplace_back("step_end " + std::to_string(step));
    if (step == 6 || step == 8) wanted.emplace_back("evaluated 1.000000");
    wanted.emplace_back("boundary");
  }
  wanted.emplace_back("end");
  EXPECT_EQ(lines, wanted);
  EXPECT_TRUE(std::filesystem::exists(result.checkpoint + "/manifest.json"));
  EXPECT_TRUE(std::filesystem::exists(result.best + "/manifest.json"));
}

// Each rank's model begins with other weights; before the first step they are rank 0's.
TEST(Trainer, BeginsWithTheStateOfRankZero) {
  const Folder folder;
  TrainConfig config = small_config(folder);
  config.max_number_of_steps = 2;
  std::atomic<int> made = 0;
  std::vector<float> seen(3);
  struct Look final : Callback {
    std::vector<float>& to;
    explicit Look(std::vector<float>& where) : to(where) {}
    void on_step_begin(Moment& moment) override {
      if (moment.state.step == 0)
        to[static_cast<size_t>(moment.rank)] = moment.trainee.replica.parameters()[0].data[5];
    }
  };
  Ingredients ingredients;
  ingredients.model = [&](const ModelShape& shape) {
    auto model = std::make_shared<Tiny>(shape);
    torch::NoGradGuard guard;
    model->layer->weight.fill_(0.001F * static_cast<float>(++made));
    return model;
  };
  ingredients.callbacks.push_back([&](int) { return std::make_unique<Look>(seen); });
  EXPECT_EQ(train_on(3, config, ingredients).steps, 2U);
  EXPECT_EQ(made, 3);
  EXPECT_GT(seen[0], 0.0F);
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
}

// A frozen layer, a mask and a table of numbers: neither trained nor mixed, but kept.
struct WithTables final : Model {
  torch::nn::Linear frozen{nullptr};
  torch::nn::Linear layer{nullptr};
  torch::Tensor mask;
  torch::Tensor table;
  explicit WithTables(const ModelShape& shape) {
    frozen = register_module("frozen", torch::nn::Linear(3 * 32 * 32, 20));
    for (auto& one : frozen->parameters()) one.set_requires_grad(false);
    layer = register_module("layer", torch::nn::Linear(20, shape.classes));
    mask = register_buffer("mask", torch::full({20}, -INFINITY));
    table = register_buffer("table", torch::arange(5, torch::kInt64));
  }
  torch::Tensor forward(torch::Tensor x) override {
    return layer(torch::maximum(frozen(x.flatten(1)), mask));
  }
};

TEST(Trainer, LeavesFrozenLayersAndTablesAlone) {
  const Folder folder;
  TrainConfig config = small_config(folder);
  config.weight_decay = 0.1;
  config.max_number_of_steps = 6;
  std::shared_ptr<WithTables> made;
  Ingredients ingredients;
  ingredients.model = [&](const ModelShape& shape) {
    return made = std::make_shared<WithTables>(shape);
  };
  torch::manual_seed(config.seed);
  const WithTables fresh(ModelShape{});
  const TrainResult result = train_on(1, config, ingredients);
  EXPECT_TRUE(torch::equal(made->frozen->weight, fresh.frozen->weight));
  EXPECT_FALSE(torch::equal(made->layer->weight, fresh.layer->weight));
  const TensorMap kept = CheckpointStore::load(result.checkpoint).model;
  EXPECT_EQ(kept.at("table").dtype, "I64");
  EXPECT_EQ(kept.at("mask").bytes.size(), 80U);
  EXPECT_TRUE(kept.contains("frozen.weight"));
}

// Fewer updates than steps: what was resumed goes the same way as what was not.
TEST(Trainer, ResumesAnOptimizerThatSkipsSteps) {
  const auto train = [](const Folder& folder, std::vector<uint64_t> stops) {
    TrainResult result;
    for (const uint64_t stop : stops) {
      TrainConfig config = small_config(folder);
      config.optimizer = OptimizerKind::kAdam;
      config.max_number_of_steps = stop;
      Ingredients ingredients;
      ingredients.model = [](const ModelShape& shape) { return std::make_shared<Tiny>(shape); };
      ingredients.optimizer = [config](std::span<const Slice> slices,
                                       const Accelerator& accelerator) {
        return make_batch_gradients(make_optimizer(config, slices, accelerator), 2, slices,
                                    accelerator);
      };
      result = train_on(1, config, ingredients);
    }
    return CheckpointStore::load(result.checkpoint);
  };
  const Folder one;
  const Snapshot straight = train(one, {13});
  const Folder two;
  const Snapshot resumed = train(two, {5, 13});
  EXPECT_EQ(straight.optimizer_steps, 6U);
  EXPECT_EQ(resumed.optimizer_steps, 6U);
  EXPECT_EQ(pack_safetensors(resumed.model), pack_safetensors(straight.model));
  EXPECT_EQ(pack_safetensors(resumed.optimizer), pack_safetensors(straight.optimizer));
}

// What a codec has not sent yet is not lost: what was resumed goes the same way as what was not.
TEST(Trainer, ResumesWithTheStateOfItsCodec) {
  const auto train = [](const Folder& folder, int ranks, uint64_t stop, const std::string& codec) {
    TrainConfig config = small_config(folder);
    config.max_number_of_steps = stop;
    config.save_checkpoints_secs = 0.001;  // each rank has a clock, one of them counts
    Ingredients ingredients;
    ingredients.model = [](const ModelShape& shape) { return std::make_shared<Tiny>(shape); };
    ingredients.codec = codec;
    return CheckpointStore::load(train_on(ranks, config, ingredients).checkpoint);
  };
  const Folder one;
  const Snapshot straight = train(one, 3, 13, "fp16+feedback");
  const Folder two;
  train(two, 3, 5, "fp16+feedback");
  const Snapshot resumed = train(two, 3, 13, "fp16+feedback");
  ASSERT_EQ(straight.codec_states.size(), 3U);
  EXPECT_EQ(straight.codec_states[2].size(), 2U);  // weight, bias
  EXPECT_NE(straight.codec_states[0], straight.codec_states[2]);
  EXPECT_EQ(resumed.codec_states, straight.codec_states);
  EXPECT_EQ(pack_safetensors(resumed.model), pack_safetensors(straight.model));
  EXPECT_EQ(train(two, 2, 15, "fp16+feedback").codec_states.size(), 2U);
}

TEST(Trainer, RefusesCodecsThatCannotBe) {
  const auto error_of = [](const Folder& folder, Reduction reduction, const std::string& codec) {
    TrainConfig config = small_config(folder);
    config.max_number_of_steps = 2;
    config.reduction = reduction;
    Ingredients ingredients;
    ingredients.model = [](const ModelShape& shape) { return std::make_shared<Tiny>(shape); };
    ingredients.codec = codec;
    Session session(std::move(make_local_world(1)[0]));
    try {
      run_rank({config, session, {}, false, 1, {}, &ingredients});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Folder folder;
  EXPECT_NE(error_of(folder, Reduction::kFast, "zip").find("zip"), std::string::npos);
  EXPECT_NE(error_of(folder, Reduction::kExact, "fp16").find("exact"), std::string::npos);
  EXPECT_EQ(error_of(folder, Reduction::kFast, "fp16+feedback"), "");
  EXPECT_NE(error_of(folder, Reduction::kFast, "").find("codec: none"), std::string::npos);
}

// Whatever the image: class 0 first, 1 next, and so on. What is right then is known by counting.
struct Fixed final : Model {
  torch::Tensor weight;
  explicit Fixed(const ModelShape&) { weight = register_parameter("weight", torch::zeros({1})); }
  torch::Tensor forward(torch::Tensor x) override {
    return (9 - torch::arange(10, torch::kFloat32)).expand({x.size(0), 10}) + 0 * weight;
  }
};

TEST(Trainer, EvaluationMatchesAHandComputedLoss) {
  DatasetRequest request;
  request.name = "shapes10";
  request.split = "test";
  const auto set = open_dataset(request);
  long double loss = 0;
  uint64_t top1 = 0;
  uint64_t top5 = 0;
  long double all = 0;
  for (int c = 0; c < 10; ++c) all += std::exp(static_cast<long double>(9 - c));
  std::vector<uint8_t> scratch;
  for (uint64_t i = 0; i < set->size(); ++i) {
    const int64_t label = set->read(i, scratch).label;
    top1 += label == 0 ? 1 : 0;
    top5 += label < 5 ? 1 : 0;
    loss += std::log(all) - static_cast<long double>(9 - label);
  }
  const auto count = static_cast<double>(set->size());
  ASSERT_GT(top1, 0U);
  for (const int ranks : {1, 3}) {
    const Folder folder;
    TrainConfig config = small_config(folder);
    config.train_epochs = 1;
    Ingredients ingredients;
    ingredients.model = [](const ModelShape& shape) { return std::make_shared<Fixed>(shape); };
    const TrainResult result = train_on(ranks, config, ingredients);
    EXPECT_DOUBLE_EQ(result.test_top1, static_cast<double>(top1) / count);
    EXPECT_DOUBLE_EQ(result.test_top5, static_cast<double>(top5) / count);
    EXPECT_NEAR(result.test_loss, static_cast<double>(loss) / count, 1e-5);
    EXPECT_EQ(result.test_samples, set->size());
  }
}

// What people read names what they brought, and how they go on.
TEST(Trainer, OutputNamesTheProgramsOwnModelAndData) {
  const Folder folder;
  TrainConfig config = small_config(folder);
  Ingredients ingredients;
  ingredients.model = [](const ModelShape& shape) { return std::make_shared<Tiny>(shape); };
  ingredients.dataset = [](const std::string& split) -> std::shared_ptr<Dataset> {
    if (split == "test") return nullptr;
    PackedPictures pictures;
    pictures.info = {"own_pictures", split, 4, 4, 3, 2, {}};
    pictures.pixels.assign(40 * 48, 7);
    for (int64_t i = 0; i < 40; ++i) pictures.labels.push_back(i % 2);
    pictures.files = {{0, "memory"}};
    return make_packed(std::move(pictures));
  };
  struct Stop final : Callback {
    std::stop_source& source;
    explicit Stop(std::stop_source& one) : source(one) {}
    void on_step_begin(Moment& moment) override {
      if (moment.state.step == 2) source.request_stop();  // as a signal does
    }
  };
  std::stop_source source;
  ingredients.callbacks.push_back([&](int) { return std::make_unique<Stop>(source); });
  config.train_epochs = 1000;
  testing::internal::CaptureStdout();
  Session session(std::move(make_local_world(1)[0]));
  RankTask job{config, session, source.get_token(), false, 1, {}, &ingredients};
  job.program = "./my_program --fast";
  const TrainResult result = run_rank(std::move(job));
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(result.interrupted);
  EXPECT_NE(said.find("Tiny on own_pictures"), std::string::npos) << said;
  EXPECT_NE(said.find("no test: there is no test"), std::string::npos);
  EXPECT_EQ(said.find("resnet_tiny"), std::string::npos) << said;
  EXPECT_EQ(said.find("horon train"), std::string::npos) << said;
  EXPECT_NE(said.find("to resume: ./my_program --fast"), std::string::npos) << said;
  EXPECT_EQ(result.test_samples, 0U);
}

TEST(Trainer, RunTakesFunctionsAsMoxingDid) {
  const Folder folder;
  RunArguments arguments;
  arguments.run_mode = "Train";
  arguments.batch_size = 20;
  arguments.log_dir = folder.path;
  arguments.max_number_of_steps = 12;
  arguments.save_model_steps = 4;
  arguments.config = small_config(folder);
  const auto input_fn = [](const std::string& split) {
    DatasetRequest request;
    request.name = "shapes10";
    request.split = split;
    request.samples = 120;
    return open_dataset(request);
  };
  const auto model_fn = [](const ModelShape& shape) { return std::make_shared<Tiny>(shape); };
  const auto optimizer_fn = [](std::span<const Slice> slices, const Accelerator& accelerator) {
    TrainConfig config;
    config.optimizer = OptimizerKind::kAdam;
    config.weight_decay = 0;
    return make_batch_gradients(make_optimizer(config, slices, accelerator), 2, slices,
                                accelerator);
  };
  const TrainResult first = run(input_fn, model_fn, optimizer_fn, arguments);
  EXPECT_EQ(first.steps, 12U);
  EXPECT_TRUE(std::filesystem::exists(folder.path / "ckpt-00000004"));
  arguments.run_mode = "eval";
  const TrainResult again = run(input_fn, model_fn, optimizer_fn, arguments);
  EXPECT_EQ(again.test_top1, first.test_top1);
  arguments.run_mode = "PREDICT";
  EXPECT_THROW(run(input_fn, model_fn, optimizer_fn, arguments), UsageError);
}

}  // namespace
}  // namespace horon::train
