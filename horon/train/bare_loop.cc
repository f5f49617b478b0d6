#include "horon/train/bare_loop.h"

#include <ATen/autocast_mode.h>

#include "horon/base/error.h"
#include "horon/train/distributed.h"
#include "horon/train/model/model.h"

namespace horon::train {

struct BareLoop::State {
  ModelShape shape;
  torch::Device device{torch::kCPU};
  bool computes_in_bf16 = false;
  std::shared_ptr<Model> model;
  std::unique_ptr<torch::optim::SGD> optimizer;   // null: it is inside `wrapped`
  std::unique_ptr<DistributedOptimizer> wrapped;  // null: there is no session

  torch::Tensor run(const torch::Tensor& x) const {
    if (!computes_in_bf16) return model->forward(x);
    at::autocast::set_autocast_enabled(device.type(), true);
    at::autocast::set_autocast_dtype(device.type(), at::kBFloat16);
    const torch::Tensor logits = model->forward(x).to(torch::kFloat32);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device.type(), false);
    return logits;
  }
};

BareLoop::BareLoop(const TrainConfig& config, const ModelShape& shape, Device device,
                   Session* session)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.shape = shape;
  state.computes_in_bf16 = config.dtype == DType::kBF16;
  if (!device.is_cpu()) {
    std::string why;
    if (!has_cuda(&why)) throw UsageError("--device cuda: " + why);
    // As in the trainer, so that both use the same algorithms.
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setBenchmarkCuDNN(false);
    at::globalContext().setAllowTF32CuDNN(false);
    state.device = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(device.index));
  }
  torch::manual_seed(config.seed);
  state.model = make_model(config.model, shape);
  state.model->to(state.device);
  {
    torch::NoGradGuard guard;
    for (auto& parameter : state.model->parameters())
      if (parameter.dim() == 4)
        parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  state.optimizer = std::make_unique<torch::optim::SGD>(
      state.model->parameters(), torch::optim::SGDOptions(config.learning_rate)
                                     .momentum(config.momentum)
                                     .nesterov(config.nesterov)
                                     .weight_decay(config.weight_decay));
  if (session != nullptr)
    state.wrapped = std::make_unique<DistributedOptimizer>(*session, std::move(state.optimizer),
                                                           state.model->named_parameters());
}
BareLoop::~BareLoop() = default;

void BareLoop::step(const Replica::Samples& samples) {
  compute(samples);
  state_->wrapped ? state_->wrapped->step() : void(state_->optimizer->step());
}

void BareLoop::compute(const Replica::Samples& samples) {
  State& state = *state_;
  const auto count = static_cast<int64_t>(samples.labels.size());
  const torch::Tensor x =
      torch::from_blob(
          const_cast<float*>(samples.pixels),
          {count, state.shape.channels, state.shape.image_size, state.shape.image_size},
          torch::TensorOptions().dtype(torch::kFloat32).device(state.device))
          .contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor labels =
      torch::from_blob(const_cast<int64_t*>(samples.labels.data()), {count}, torch::kInt64)
          .to(state.device);
  state.model->train();
  state.wrapped ? state.wrapped->zero_grad() : state.optimizer->zero_grad();
  torch::nn::functional::cross_entropy(state.run(x), labels).backward();
  if (state.wrapped) state.wrapped->synchronize();
}

TensorMap BareLoop::state() const {
  torch::NoGradGuard guard;
  TensorMap map;
  const auto keep = [&map](const std::string& name, const torch::Tensor& tensor) {
    const torch::Tensor plain = tensor.to(torch::kFloat32).cpu().contiguous();
    NamedTensor& one = map[name];
    one.dtype = "F32";
    for (const int64_t size : plain.sizes()) one.shape.push_back(static_cast<uint64_t>(size));
    one.bytes.assign(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
  };
  for (const auto& item : state_->model->named_parameters()) keep(item.key(), item.value());
  for (const auto& item : state_->model->named_buffers())
    if (!item.key().ends_with("num_batches_tracked")) keep(item.key(), item.value());
  return map;
}

}  // namespace horon::train
