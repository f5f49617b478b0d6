// The residual family: CIFAR's (6n + 2), ImageNet's (v1 with v1.5's strides, or slim's), and a tiny
// one.
#include "horon/train/model/model.h"

namespace horon::train {
namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// Two 3x3 convolutions.
class BasicBlock : public nn::Module {
 public:
  BasicBlock(int64_t in, int64_t out, int64_t stride, bool projects)
      : first_(convolution(in, out, 3, stride)),
        norm1_(out),
        second_(convolution(out, out, 3, 1)),
        norm2_(out) {
    register_module("conv1", first_);
    register_module("bn1", norm1_);
    register_module("conv2", second_);
    register_module("bn2", norm2_);
    if (!projects) return;
    shortcut_ = convolution(in, out, 1, stride);
    shortcut_norm_ = Norm(out);
    register_module("shortcut", shortcut_);
    register_module("shortcut_bn", shortcut_norm_);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::relu(norm1_(first_(x)));
    y = norm2_(second_(y));
    return torch::relu(y + (shortcut_ ? shortcut_norm_(shortcut_(x)) : x));
  }

 private:
  nn::Conv2d first_;
  Norm norm1_;
  nn::Conv2d second_;
  Norm norm2_;
  nn::Conv2d shortcut_{nullptr};
  Norm shortcut_norm_{nullptr};
};

// 1x1, 3x3 (with the stride), 1x1.
class Bottleneck : public nn::Module {
 public:
  Bottleneck(int64_t in, int64_t width, int64_t stride, bool projects)
      : conv1_(convolution(in, width, 1, 1)),
        bn1_(width),
        conv2_(convolution(width, width, 3, stride)),
        bn2_(width),
        conv3_(convolution(width, 4 * width, 1, 1)),
        bn3_(4 * width),
        stride_(stride) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    register_module("conv3", conv3_);
    register_module("bn3", bn3_);
    if (!projects) return;
    shortcut_ = convolution(in, 4 * width, 1, stride);
    shortcut_bn_ = Norm(4 * width);
    register_module("shortcut", shortcut_);
    register_module("shortcut_bn", shortcut_bn_);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::relu(bn1_(conv1_(x)));
    y = torch::relu(bn2_(conv2_(y)));
    y = bn3_(conv3_(y));
    torch::Tensor side = x;
    if (shortcut_) {
      side = shortcut_bn_(shortcut_(x));
    } else if (stride_ > 1) {  // slim: every other pixel
      side = torch::max_pool2d(x, 1, stride_);
    }
    return torch::relu(y + side);
  }

 private:
  nn::Conv2d conv1_;
  Norm bn1_;
  nn::Conv2d conv2_;
  Norm bn2_;
  nn::Conv2d conv3_;
  Norm bn3_;
  int64_t stride_;
  nn::Conv2d shortcut_{nullptr};
  Norm shortcut_bn_{nullptr};
};

struct ResidualSpec {
  std::vector<int> blocks;  // of each stage
  int64_t width = 16;       // of the first one
  int64_t stem_kernel = 3;
  int64_t stem_stride = 1;
  bool pools = false;  // 3x3, stride 2, after the stem
  bool bottlenecks = false;
  bool slim_strides = false;  // in the last unit of each stage but the last
};

class Residual final : public Model {
 public:
  Residual(const ResidualSpec& plan, const ModelShape& shape)
      : plan_(plan),
        stem_(convolution(shape.channels, plan.bottlenecks || plan.pools ? 64 : plan.width,
                          plan.stem_kernel, plan.stem_stride)),
        norm_(plan.bottlenecks || plan.pools ? 64 : plan.width) {
    register_module("conv1", stem_);
    register_module("bn1", norm_);
    int64_t in = plan.bottlenecks || plan.pools ? 64 : plan.width;
    for (size_t stage = 0; stage < plan.blocks.size(); ++stage) {
      const int64_t width = plan.width << stage;
      nn::Sequential units;
      for (int unit = 0; unit < plan.blocks[stage]; ++unit) {
        const int64_t out = plan.bottlenecks ? 4 * width : width;
        const int64_t stride = stride_of(stage, unit);
        const bool projects =
            unit == 0 && (in != out || stride > 1 || (plan.bottlenecks && stage == 0));
        if (plan.bottlenecks) {
          units->push_back(Bottleneck(in, width, stride, projects));
        } else {
          units->push_back(BasicBlock(in, out, stride, projects));
        }
        in = out;
      }
      register_module("layer" + std::to_string(stage + 1), units);
      stages_.push_back(units);
    }
    head_ = register_module("fc", nn::Linear(in, shape.classes));
    initialise();
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(norm_(stem_(x)));
    if (plan_.pools) x = torch::max_pool2d(x, 3, 2, 1);
    for (nn::Sequential& stage : stages_) x = stage->forward(x);
    return head_(x.mean({2, 3}));
  }

 private:
  int64_t stride_of(size_t stage, int unit) const {
    if (plan_.slim_strides)
      return stage + 1 < plan_.blocks.size() && unit + 1 == plan_.blocks[stage] ? 2 : 1;
    return stage > 0 && unit == 0 ? 2 : 1;
  }
  // He's for convolutions, N(0, 0.01) for the head.
  void initialise() {
    torch::NoGradGuard guard;
    for (const auto& module : modules(false)) {
      if (auto* one = module->as<nn::Conv2d>())
        nn::init::kaiming_normal_(one->weight, 0.0, torch::kFanOut, torch::kReLU);
    }
    head_->weight.normal_(0.0, 0.01);
    head_->bias.zero_();
  }

  ResidualSpec plan_;
  nn::Conv2d stem_;
  Norm norm_;
  std::vector<nn::Sequential> stages_;
  nn::Linear head_{nullptr};
};

void add(const std::string& name, const ResidualSpec& plan) {
  register_model(
      name, [plan](const ModelShape& shape) { return std::make_shared<Residual>(plan, shape); });
}

}  // namespace

void add_residual_models() {
  add("resnet_tiny", {.blocks = {1, 1, 1}, .stem_stride = 2});
  for (const int n : {3, 9, 18})
    add("resnet_v1_" + std::to_string(6 * n + 2), {.blocks = {n, n, n}});
  const ResidualSpec imagenet{
      .blocks = {2, 2, 2, 2}, .width = 64, .stem_kernel = 7, .stem_stride = 2, .pools = true};
  add("resnet_v1_18", imagenet);
  ResidualSpec fifty = imagenet;
  fifty.blocks = {3, 4, 6, 3};
  fifty.bottlenecks = true;
  add("resnet_v1_50", fifty);
  fifty.slim_strides = true;
  add("resnet_v1_50_slim", fifty);
}

}  // namespace horon::train
