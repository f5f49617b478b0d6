// Horon's trainer with its own network, data set, optimizer and callback:
//   horon run -np 2 example_trainer [MODEL_DIR]
#include <cmath>
#include <cstdio>

#include "horon/horon.h"

// Images (N x channels x size x size) to logits (N x classes). The loss is cross entropy unless
// loss() is overridden.
struct MyNet : horon::train::Model {
  torch::nn::Conv2d conv{nullptr};
  horon::train::Norm norm{nullptr};  // torch's also works, except with --sync_batch_norm
  torch::nn::Linear last{nullptr};

  explicit MyNet(const horon::train::ModelShape& shape) {
    conv = register_module("conv", torch::nn::Conv2d(shape.channels, 16, 5));
    norm = register_module("norm", horon::train::Norm(16));
    last = register_module("last", torch::nn::Linear(16, shape.classes));
  }
  torch::Tensor forward(torch::Tensor x) override {
    return last(torch::relu(norm(conv(x))).mean({2, 3}));
  }
};

// Numbered, labelled images. read() is called from several threads at once.
class Stripes : public horon::Dataset {
 public:
  explicit Stripes(const std::string& split) : size_(split == "train" ? 2000 : 400) {
    info_.height = info_.width = 32;
    info_.channels = 3;
    info_.classes = 2;
  }
  const horon::DatasetInfo& info() const override { return info_; }
  uint64_t size() const override { return size_; }
  horon::Record read(uint64_t index, std::vector<uint8_t>& scratch) const override {
    const bool upright = index % 2 == 1;
    scratch.resize(32 * 32 * 3);
    for (uint64_t i = 0; i < scratch.size(); ++i) {
      const uint64_t y = i / 96;
      const uint64_t x = i / 3 % 32;
      scratch[i] = ((upright ? x : y) + index) % 8 < 4 ? 255 : 0;
    }
    return {scratch, horon::PixelForm::kHwc, 32, 32, 3, upright ? 1 : 0};
  }
  std::string where(uint64_t index) const override { return "stripe " + std::to_string(index); }

 private:
  horon::DatasetInfo info_;
  uint64_t size_;
};

// Steps of a fixed size in the direction of the gradient. Each slice is one network parameter.
struct SignDescent : horon::train::Optimizer {
  void step(std::span<const horon::train::Slice> slices, double rate) override {
    ++steps;
    for (const horon::train::Slice& one : slices) {
      for (uint64_t i = 0; i < one.count; ++i)
        one.parameter[i] -= std::copysign(static_cast<float>(rate), one.gradient[i]);
    }
  }
  std::map<std::string, horon::BufferView> state() override { return {}; }  // for checkpoints
};

// One per rank; all ranks call its functions at the same points. Only rank 0's screen prints.
struct EnoughIsEnough : horon::train::Callback {
  void on_evaluated(horon::train::Moment& moment) override {
    moment.screen.say("test loss " + std::to_string(moment.result.test_loss));
    if (moment.result.test_top1 == 1.0) moment.stop();
  }
};

// Called on each rank.
std::shared_ptr<horon::Dataset> input_fn(const std::string& split) {  // "train", "test"
  return std::make_shared<Stripes>(split);
}
std::shared_ptr<horon::train::Model> model_fn(const horon::train::ModelShape& shape) {
  return std::make_shared<MyNet>(shape);
}
std::unique_ptr<horon::train::Optimizer> optimizer_fn(std::span<const horon::train::Slice>,
                                                      const horon::train::Accelerator&) {
  return std::make_unique<SignDescent>();
}

horon::TrainResult train(const std::string& model_dir) {
  horon::TrainConfig config;  // the settings of `horon train`, under the same names
  config.batch_size = 100;    // of all ranks together
  config.train_epochs = 20;
  config.learning_rate = 0.01;
  config.preprocessing = "cifar";
  config.model = "my_net";  // only for the log; the model comes from `mine`
  config.dataset = "stripes";
  config.model_dir = model_dir;
  config.device = horon::DeviceChoice::kCpu;  // SignDescent needs the parameters in host memory

  horon::Ingredients mine;  // everything else is selected by the settings
  mine.dataset = input_fn;
  mine.model = model_fn;
  mine.optimizer = optimizer_fn;
  mine.callbacks.push_back([](int /*rank*/) { return std::make_unique<EnoughIsEnough>(); });
  return horon::Trainer(config, mine).train();
}

horon::TrainResult run(const std::string& log_dir) {
  horon::RunArguments arguments;
  arguments.batch_size = 50;  // per rank
  arguments.log_dir = log_dir;
  arguments.max_number_of_steps = 40;
  arguments.config.learning_rate = 0.01;  // everything else: a TrainConfig
  arguments.config.preprocessing = "cifar";
  arguments.config.device = horon::DeviceChoice::kCpu;
  return horon::run(input_fn, model_fn, optimizer_fn, arguments);
}

int main(int argc, char** argv) {
  const std::string model_dir = argc > 1 ? argv[1] : "";  // "": a new folder in ./runs
  const std::string how = argc > 2 ? argv[2] : "train";
  if (model_dir == "--help" || argc > 3 || (how != "train" && how != "run")) {
    std::fputs("usage: trainer [MODEL_DIR [train | run]]\n", argc == 2 ? stdout : stderr);
    return argc == 2 ? 0 : 2;
  }
  try {
    const horon::TrainResult result = how == "run" ? run(model_dir) : train(model_dir);
    return result.interrupted ? static_cast<int>(horon::ExitCode::kInterrupted) : 0;
  } catch (const horon::Error& error) {
    std::fprintf(stderr, "trainer: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainer: %s\n", error.what());
    return 1;
  }
}
