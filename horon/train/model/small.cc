// lenet, the workshop's CNN, and dropout.
#include "horon/base/error.h"
#include "horon/data/random.h"
#include "horon/train/model/model.h"

namespace horon::train {
namespace {

namespace nn = torch::nn;
constexpr uint32_t kDropoutDraws = 3000;  // operations that nothing else uses

int64_t pooled(int64_t size, int times) { return size >> times; }

// Two 5x5 convolutions with pooling, 1024, dropout.
class Lenet final : public Model {
 public:
  explicit Lenet(const ModelShape& shape)
      : conv1_(register_module("conv1",
                               nn::Conv2d(nn::Conv2dOptions(shape.channels, 32, 5).padding(2)))),
        conv2_(register_module("conv2", nn::Conv2d(nn::Conv2dOptions(32, 64, 5).padding(2)))),
        fc3_(register_module(
            "fc3",
            nn::Linear(64 * pooled(shape.image_size, 2) * pooled(shape.image_size, 2), 1024))),
        drop_(0.5, 0),
        fc4_(register_module("fc4", nn::Linear(1024, shape.classes))) {}
  torch::Tensor forward(torch::Tensor x) override {
    x = torch::max_pool2d(torch::relu(conv1_(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2_(x)), 2);
    x = torch::relu(fc3_(x.contiguous().flatten(1)));
    return fc4_(is_training() ? drop_.forward(x) : x);
  }

 private:
  nn::Conv2d conv1_;
  nn::Conv2d conv2_;
  nn::Linear fc3_;
  CounterDropout drop_;
  nn::Linear fc4_;
};

// Three pairs of 3x3 convolutions (32, 64, 128), each with batch norm, then 512.
class WorkshopCnn final : public Model {
 public:
  explicit WorkshopCnn(const ModelShape& shape) {
    int64_t in = shape.channels;
    int64_t side = shape.image_size;
    for (size_t stage = 0; stage < 3; ++stage) {
      const int64_t width = 32 << stage;
      for (size_t k = 0; k < 2; ++k) {  // "same", then "valid"
        const std::string number = std::to_string(2 * stage + k + 1);
        convs_.push_back(register_module(
            "conv" + number,
            nn::Conv2d(nn::Conv2dOptions(k == 0 ? in : width, width, 3).padding(k == 0 ? 1 : 0))));
        norms_.push_back(register_module("bn" + number, Norm(width)));
      }
      drops_.emplace_back(0.2 + 0.1 * static_cast<double>(stage), static_cast<uint32_t>(stage));
      in = width;
      side = (side - 2) / 2;
    }
    fc1_ = register_module("fc1", nn::Linear(in * side * side, 512));
    fc2_ = register_module("fc2", nn::Linear(512, shape.classes));
  }
  torch::Tensor forward(torch::Tensor x) override {
    for (size_t stage = 0; stage < 3; ++stage) {
      for (size_t k = 0; k < 2; ++k)
        x = torch::relu(norms_[2 * stage + k](convs_[2 * stage + k](x)));
      x = torch::max_pool2d(x, 2);
      if (is_training()) x = drops_[stage].forward(x);
    }
    x = torch::relu(fc1_(x.contiguous().flatten(1)));
    return fc2_(is_training() ? CounterDropout(0.5, 3).forward(x) : x);
  }

 private:
  std::vector<nn::Conv2d> convs_;
  std::vector<Norm> norms_;
  std::vector<CounterDropout> drops_;
  nn::Linear fc1_{nullptr};
  nn::Linear fc2_{nullptr};
};

}  // namespace

DropoutKey& dropout_key() {
  thread_local DropoutKey key;
  return key;
}

torch::Tensor CounterDropout::forward(const torch::Tensor& x) const {
  const DropoutKey& key = dropout_key();
  if (key.samples.size() != static_cast<size_t>(x.size(0)))
    throw UsageError("dropout: say which samples these are: dropout_key() = {seed, step, samples}");
  const int64_t each = x.numel() / x.size(0);
  torch::Tensor mask = torch::empty({x.size(0), each}, torch::kFloat32);
  const auto limit = static_cast<uint32_t>(rate_ * 4294967296.0);
  const auto kept = static_cast<float>(1.0 / (1.0 - rate_));
  auto* out = mask.data_ptr<float>();
  for (int64_t n = 0; n < x.size(0); ++n) {
    Draws draws(key.seed, key.step, key.samples[static_cast<size_t>(n)], kDropoutDraws + layer_);
    for (int64_t i = 0; i < each; ++i) *out++ = draws.word() < limit ? 0.0F : kept;
  }
  return x * mask.view(x.sizes()).to(x.device());
}

void add_small_models() {
  register_model("lenet", [](const ModelShape& shape) { return std::make_shared<Lenet>(shape); });
  register_model("workshop_cnn",
                 [](const ModelShape& shape) { return std::make_shared<WorkshopCnn>(shape); });
}

}  // namespace horon::train
