#include "horon/train/replica.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <mutex>

#include "horon/base/error.h"
#include "horon/base/registry.h"
#include "horon/train/model/model.h"

namespace horon::train {
namespace {

Registry<ModelMaker>& registry() {
  static Registry<ModelMaker> all("model");
  return all;
}

void add_builtin_models() {
  static std::once_flag once;
  std::call_once(once, [] {
    add_residual_models();
    add_small_models();
  });
}

// Calls back when a parameter's gradient is complete.
class Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(std::function<void(size_t)>& ready, size_t index) : ready_(ready), index_(index) {}
  void operator()(const torch::autograd::Variable&) override {
    if (ready_) ready_(index_);
  }

 private:
  std::function<void(size_t)>& ready_;
  size_t index_;
};

}  // namespace

void register_model(const std::string& name, ModelMaker maker) {
  registry().add(name, std::move(maker));
}

std::shared_ptr<Model> make_model(const std::string& name, const ModelShape& shape) {
  add_builtin_models();
  return registry().find(name)(shape);
}

std::vector<std::string> model_names() {
  add_builtin_models();
  return registry().names();
}

struct Replica::State {
  TrainConfig config;
  ModelShape shape;
  std::shared_ptr<Model> model;
  std::vector<torch::Tensor> tensors;  // parameters, in order
  std::vector<ModelArray> parameters;
  std::vector<ModelArray> statistics;
  std::function<void(size_t)> ready;

  torch::Tensor picture_of(const Samples& samples) const {
    const auto count = static_cast<int64_t>(samples.labels.size());
    auto x = torch::from_blob(const_cast<float*>(samples.pixels),
                              {count, shape.channels, shape.image_size, shape.image_size},
                              torch::kFloat32);
    return x.contiguous(torch::MemoryFormat::ChannelsLast);
  }
  torch::Tensor labels_of(const Samples& samples) const {
    return torch::from_blob(const_cast<int64_t*>(samples.labels.data()),
                            {static_cast<int64_t>(samples.labels.size())}, torch::kInt64);
  }
  torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& labels) const {
    return torch::nn::functional::cross_entropy(logits, labels,
                                                torch::nn::functional::CrossEntropyFuncOptions()
                                                    .reduction(torch::kSum)
                                                    .label_smoothing(config.label_smoothing));
  }
  Score score_of(const torch::Tensor& logits, const torch::Tensor& labels,
                 const torch::Tensor& loss) const {
    torch::NoGradGuard guard;
    Score score;
    score.loss = loss.item<double>();
    score.count = static_cast<double>(labels.size(0));
    const int64_t most = std::min<int64_t>(5, logits.size(1));
    const torch::Tensor best = std::get<1>(logits.topk(most, 1));
    const torch::Tensor right = best.eq(labels.unsqueeze(1));
    score.top1 = static_cast<double>(right.select(1, 0).sum().item<int64_t>());
    score.top5 = static_cast<double>(right.any(1).sum().item<int64_t>());
    return score;
  }
  torch::Tensor run(const torch::Tensor& x) const {
    if (config.dtype != "bf16") return model->forward(x);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const torch::Tensor logits = model->forward(x).to(torch::kFloat32);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return logits;
  }
};

Replica::Replica(const TrainConfig& config, const ModelShape& shape, int threads)
    : state_(std::make_unique<State>()) {
  static std::mutex building;  // the generator of initial weights is the process's
  State& state = *state_;
  state.config = config;
  state.shape = shape;
  at::init_num_threads();
  torch::set_num_threads(threads);
  {
    const std::lock_guard lock(building);
    torch::manual_seed(config.seed);
    state.model = make_model(config.model, shape);
  }
  for (auto& parameter : state.model->parameters()) {
    torch::NoGradGuard guard;
    if (parameter.dim() == 4)
      parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  for (const auto& item : state.model->named_parameters()) {
    const torch::Tensor& tensor = item.value();
    state.parameters.push_back({item.key(), tensor.data_ptr<float>(),
                                static_cast<uint64_t>(tensor.numel()), tensor.dim() > 1});
    torch::autograd::impl::set_post_acc_grad_hooks(
        tensor, std::make_unique<Hook>(state.ready, state.tensors.size()));
    state.tensors.push_back(tensor);
  }
  for (const auto& item : state.model->named_buffers()) {
    if (item.value().scalar_type() != torch::kFloat32) continue;
    state.statistics.push_back({item.key(), item.value().data_ptr<float>(),
                                static_cast<uint64_t>(item.value().numel()), false});
  }
}
Replica::~Replica() = default;

const std::vector<ModelArray>& Replica::parameters() const { return state_->parameters; }
const std::vector<ModelArray>& Replica::statistics() const { return state_->statistics; }

uint64_t Replica::parameter_count() const {
  uint64_t count = 0;
  for (const ModelArray& one : state_->parameters) count += one.count;
  return count;
}

Score Replica::train(
    const Samples& samples, double divisor,
    const std::function<void(size_t parameter, const float* gradient)>& on_gradient) {
  State& state = *state_;
  state.model->train();
  dropout_key() = {state.config.seed, samples.step, samples.numbers};
  // The gradient is autograd's own, once; whoever wants it has it copied here and now.
  state.ready = [&](size_t i) {
    torch::Tensor& gradient = state.tensors[i].mutable_grad();
    const torch::Tensor& parameter = state.tensors[i];
    const bool same =
        gradient.dim() != 4 || gradient.is_contiguous(torch::MemoryFormat::ChannelsLast);
    const torch::Tensor dense = same && gradient.is_non_overlapping_and_dense() ? gradient
                                : parameter.dim() == 4
                                    ? gradient.contiguous(torch::MemoryFormat::ChannelsLast)
                                    : gradient.contiguous();
    on_gradient(i, dense.data_ptr<float>());
    gradient = torch::Tensor();
  };
  const torch::Tensor labels = state.labels_of(samples);
  const torch::Tensor logits = state.run(state.picture_of(samples));
  const torch::Tensor loss = state.loss_of(logits, labels);
  const Score score = state.score_of(logits, labels, loss);
  (loss / divisor).backward();
  state.ready = nullptr;
  return score;
}

Score Replica::evaluate(const Samples& samples) {
  torch::NoGradGuard guard;
  state_->model->eval();
  const torch::Tensor labels = state_->labels_of(samples);
  const torch::Tensor logits = state_->run(state_->picture_of(samples));
  return state_->score_of(logits, labels, state_->loss_of(logits, labels));
}

struct BareLoop::State {
  ModelShape shape;
  std::shared_ptr<Model> model;
  std::unique_ptr<torch::optim::SGD> optimizer;
};

BareLoop::BareLoop(const TrainConfig& config, const ModelShape& shape)
    : state_(std::make_unique<State>()) {
  state_->shape = shape;
  torch::manual_seed(config.seed);
  state_->model = make_model(config.model, shape);
  for (auto& parameter : state_->model->parameters()) {
    torch::NoGradGuard guard;
    if (parameter.dim() == 4)
      parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  state_->optimizer = std::make_unique<torch::optim::SGD>(
      state_->model->parameters(), torch::optim::SGDOptions(config.learning_rate)
                                       .momentum(config.momentum)
                                       .nesterov(config.nesterov)
                                       .weight_decay(config.weight_decay));
}
BareLoop::~BareLoop() = default;

void BareLoop::step(const Replica::Samples& samples) {
  const auto count = static_cast<int64_t>(samples.labels.size());
  const auto x = torch::from_blob(const_cast<float*>(samples.pixels),
                                  {count, state_->shape.channels, state_->shape.image_size,
                                   state_->shape.image_size},
                                  torch::kFloat32)
                     .contiguous(torch::MemoryFormat::ChannelsLast);
  const auto labels =
      torch::from_blob(const_cast<int64_t*>(samples.labels.data()), {count}, torch::kInt64);
  state_->model->train();
  state_->optimizer->zero_grad();
  torch::nn::functional::cross_entropy(state_->model->forward(x), labels).backward();
  state_->optimizer->step();
}

namespace {

TensorMap state_of(const Model& model) {
  torch::NoGradGuard guard;
  TensorMap map;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (tensor.scalar_type() != torch::kFloat32) return;
    const torch::Tensor plain = tensor.contiguous();
    NamedTensor& one = map[name];
    for (const int64_t size : plain.sizes()) one.shape.push_back(static_cast<uint64_t>(size));
    one.bytes.assign(reinterpret_cast<const char*>(plain.data_ptr<float>()),
                     static_cast<size_t>(plain.numel()) * 4);
  };
  for (const auto& item : model.named_parameters()) add(item.key(), item.value());
  for (const auto& item : model.named_buffers()) add(item.key(), item.value());
  return map;
}

}  // namespace

TensorMap Replica::state() const { return state_of(*state_->model); }
TensorMap BareLoop::state() const { return state_of(*state_->model); }

void Replica::load(const TensorMap& tensors) {
  torch::NoGradGuard guard;
  const auto take = [&](const std::string& name, torch::Tensor tensor) {
    if (tensor.scalar_type() != torch::kFloat32) return;
    const auto found = tensors.find(name);
    if (found == tensors.end())
      throw Error(fmt::format("the checkpoint has no '{}'", name), ExitCode::kCheckpoint);
    const NamedTensor& one = found->second;
    if (one.dtype != "F32" || one.bytes.size() != static_cast<size_t>(tensor.numel()) * 4 ||
        !std::equal(one.shape.begin(), one.shape.end(), tensor.sizes().begin(),
                    tensor.sizes().end(),
                    [](uint64_t a, int64_t b) { return a == static_cast<uint64_t>(b); }))
      throw Error(fmt::format("the checkpoint's '{}' has another shape", name),
                  ExitCode::kCheckpoint);
    std::string bytes = one.bytes;
    tensor.copy_(torch::from_blob(bytes.data(), tensor.sizes(), torch::kFloat32));
  };
  for (auto& item : state_->model->named_parameters()) take(item.key(), item.value());
  for (auto& item : state_->model->named_buffers()) take(item.key(), item.value());
}

}  // namespace horon::train
