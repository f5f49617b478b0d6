#include "horon/train/replica.h"

#include <ATen/autocast_mode.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <mutex>

#include "horon/base/error.h"
#include "horon/train/model/model.h"
#include "horon/train/torch_bridge.h"

namespace horon::train {

// The CUDA half of LibTorch lies beside the other one.
bool has_cuda(std::string* why) {
  static std::string reason;
  static const bool kFound = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&at::globalContext), &info);
    const std::string path = info.dli_fname == nullptr ? "" : info.dli_fname;
    const std::string cuda = path.substr(0, path.rfind('/') + 1) + "libtorch_cuda.so";
    if (dlopen(cuda.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      reason = dlerror();
      return false;
    }
    if (torch::cuda::is_available()) return true;
    reason = "LibTorch finds no GPU";
    return false;
  }();
  if (why != nullptr) *why = reason;
  return kFound;
}

namespace {

// Where training is to give the same bits from run to run, no algorithm is chosen by its speed.
void prepare_cuda() {
  std::string why;
  if (!has_cuda(&why)) throw UsageError("--device cuda: " + why);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setAllowTF32CuDNN(false);
}

// What LibTorch says of a model that does not fit its images, without its stack.
template <typename Action>
auto in_plain_words(const ModelShape& shape, const Action& action) {
  try {
    return action();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    const std::string why = error.what_without_backtrace();
    throw UsageError(fmt::format("the model cannot take images of {}x{}x{}: {}", shape.channels,
                                 shape.image_size, shape.image_size,
                                 why.substr(0, why.find('\n'))));
  }
}

// Built on the CPU, so that the weights are the same wherever the model goes.
std::shared_ptr<Model> build(const TrainConfig& config, const ModelShape& shape,
                             const ModelMaker& maker, Device device) {
  static std::mutex building;  // LibTorch's generator of initial weights is global
  if (!device.is_cpu()) prepare_cuda();
  const std::lock_guard lock(building);
  torch::manual_seed(config.seed);
  std::shared_ptr<Model> model =
      in_plain_words(shape, [&] { return maker ? maker(shape) : make_model(config.model, shape); });
  if (model == nullptr) throw UsageError("model_fn gave no model");
  model->to(torch_device(device));
  torch::NoGradGuard guard;
  for (auto& parameter : model->parameters()) {
    if (parameter.scalar_type() != torch::kFloat32)
      throw UsageError("parameters are f32; --dtype says what the network computes in");
    if (parameter.dim() == 4)
      parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  }
  return model;
}

torch::Tensor pictures_of(const Replica::Samples& samples, const ModelShape& shape,
                          torch::Device place) {
  const auto x = torch::from_blob(const_cast<float*>(samples.pixels),
                                  {static_cast<int64_t>(samples.labels.size()), shape.channels,
                                   shape.image_size, shape.image_size},
                                  torch::TensorOptions().dtype(torch::kFloat32).device(place));
  return x.contiguous(torch::MemoryFormat::ChannelsLast);
}

torch::Tensor labels_of(const Replica::Samples& samples, torch::Device place) {
  return torch::from_blob(const_cast<int64_t*>(samples.labels.data()),
                          {static_cast<int64_t>(samples.labels.size())}, torch::kInt64)
      .to(place);
}

// Calls `action` at the end of its life, also when something was thrown.
struct AtEnd {
  std::function<void()> action;
  ~AtEnd() { action(); }
};

// The network in bf16 where that is safe; weights and logits stay f32.
torch::Tensor run_bf16(Model& model, const torch::Tensor& x) {
  const auto kind = x.device().type();
  const AtEnd end{[kind] {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(kind, false);
  }};
  at::autocast::set_autocast_enabled(kind, true);
  at::autocast::set_autocast_dtype(kind, at::kBFloat16);
  return model.forward(x).to(torch::kFloat32);
}

const char* dtype_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return "F32";
    case torch::kFloat64:
      return "F64";
    case torch::kFloat16:
      return "F16";
    case torch::kBFloat16:
      return "BF16";
    case torch::kInt64:
      return "I64";
    case torch::kInt32:
      return "I32";
    case torch::kInt16:
      return "I16";
    case torch::kInt8:
      return "I8";
    case torch::kUInt8:
      return "U8";
    case torch::kBool:
      return "BOOL";
    default:
      throw UsageError("the model has a tensor of a type that cannot be kept");
  }
}

// Everything of a model that is kept, by name. How often batch norm was called is not: it depends
// on the number of shards, and nothing uses it.
std::vector<std::pair<std::string, torch::Tensor>> kept_tensors(const Model& model) {
  std::vector<std::pair<std::string, torch::Tensor>> all;
  for (const auto& item : model.named_parameters()) all.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) {
    if (!item.key().ends_with("num_batches_tracked")) all.emplace_back(item.key(), item.value());
  }
  return all;
}

// One copy from the device for all four.
Score score_of(const torch::Tensor& logits, const torch::Tensor& labels,
               const torch::Tensor& loss) {
  torch::NoGradGuard guard;
  const int64_t most = std::min<int64_t>(5, logits.size(1));
  const torch::Tensor right = std::get<1>(logits.topk(most, 1)).eq(labels.unsqueeze(1));
  const torch::Tensor numbers =
      torch::stack({loss.to(torch::kFloat64), right.select(1, 0).sum().to(torch::kFloat64),
                    right.any(1).sum().to(torch::kFloat64)})
          .cpu();
  const auto* at = numbers.data_ptr<double>();
  return {at[0], at[1], at[2], static_cast<double>(labels.size(0))};
}

}  // namespace

struct Replica::State {
  TrainConfig config;
  ModelShape shape;
  Device device;
  torch::Device place{torch::kCPU};
  Communicator* norm_over = nullptr;
  std::shared_ptr<Model> model;
  std::vector<torch::Tensor> tensors;  // parameters, in order
  std::vector<ModelArray> parameters;
  std::vector<ModelArray> statistics;
  std::vector<torch::Tensor> statistic_tensors;
  torch::Tensor kept;  // statistics
  std::function<void(size_t)> ready;
  std::unique_ptr<GradientHooks> hooks;
  // State of the last forward pass.
  torch::Tensor labels;
  torch::Tensor logits;
  torch::Tensor loss;

  void set_statistics(const torch::Tensor& all) {
    torch::NoGradGuard guard;
    int64_t at = 0;
    for (torch::Tensor& one : statistic_tensors) {
      one.copy_(all.narrow(0, at, one.numel()));
      at += one.numel();
    }
  }
  torch::Tensor run(const torch::Tensor& x) const {
    return in_plain_words(shape, [&] {
      return config.dtype == DType::kBF16 ? run_bf16(*model, x) : model->forward(x);
    });
  }
};

Replica::Replica(const TrainConfig& config, const ModelShape& shape, const Options& options)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.config = config;
  state.shape = shape;
  state.device = options.device;
  state.place = torch_device(options.device);
  at::init_num_threads();
  torch::set_num_threads(options.threads);
  state.model = build(config, shape, options.model, options.device);
  for (const auto& item : state.model->named_parameters()) {
    const torch::Tensor& tensor = item.value();
    if (!tensor.requires_grad()) continue;  // frozen
    state.parameters.push_back({item.key(), tensor.data_ptr<float>(),
                                static_cast<uint64_t>(tensor.numel()), tensor.dim() > 1,
                                options.device});
    state.tensors.push_back(tensor);
  }
  state.hooks = std::make_unique<GradientHooks>(state.tensors, [&state](size_t i) {
    if (state.ready) state.ready(i);
  });
  for (const auto& item : state.model->named_buffers()) {
    const bool is_statistic =
        item.key().ends_with("running_mean") || item.key().ends_with("running_var");
    if (!is_statistic || item.value().scalar_type() != torch::kFloat32) continue;
    state.statistics.push_back({item.key(), item.value().data_ptr<float>(),
                                static_cast<uint64_t>(item.value().numel()), false,
                                options.device});
    state.statistic_tensors.push_back(item.value().view({-1}));
  }
}
Replica::~Replica() = default;

void Replica::norm_over(Communicator* ranks) {
  state_->norm_over = ranks;
  if (ranks == nullptr) return;
  for (const auto& module : state_->model->modules(false)) {
    if (module->as<torch::nn::BatchNorm2d>() != nullptr && module->as<NormImpl>() == nullptr)
      throw UsageError(
          "--sync_batch_norm: this model uses torch::nn::BatchNorm2d; horon::train::Norm can "
          "take its statistics over all ranks");
  }
}

const std::vector<ModelArray>& Replica::parameters() const { return state_->parameters; }
const std::vector<ModelArray>& Replica::statistics() const { return state_->statistics; }

std::string torch_kind() { return fmt::format("{}, {}", TORCH_VERSION, at::get_cpu_capability()); }

std::string Replica::type_name() const {
  const std::string whole = state_->model->name();
  const size_t colons = whole.rfind("::");
  return colons == std::string::npos ? whole : whole.substr(colons + 2);
}

uint64_t Replica::parameter_count() const {
  uint64_t count = 0;
  for (const ModelArray& one : state_->parameters) count += one.count;
  return count;
}

std::vector<float> Replica::read_statistics() const {
  torch::NoGradGuard guard;
  if (state_->statistic_tensors.empty()) return {};
  const torch::Tensor all = torch::cat(state_->statistic_tensors).cpu();
  const auto* data = all.data_ptr<float>();
  return {data, data + all.numel()};
}

void Replica::write_statistics(const float* values) {
  torch::NoGradGuard guard;
  int64_t count = 0;
  for (const ModelArray& one : state_->statistics) count += static_cast<int64_t>(one.count);
  if (count == 0) return;
  state_->set_statistics(
      torch::from_blob(const_cast<float*>(values), {count}, torch::kFloat32).to(state_->place));
}

void Replica::keep_statistics() {
  torch::NoGradGuard guard;
  if (!state_->statistic_tensors.empty()) state_->kept = torch::cat(state_->statistic_tensors);
}

void Replica::restore_statistics() {
  if (state_->kept.defined()) state_->set_statistics(state_->kept);
}

void Replica::forward(const Samples& samples, const std::function<void(size_t)>& need) {
  State& state = *state_;
  state.model->train();
  for (size_t i = 0; need && i < state.tensors.size(); ++i) need(i);
  const AtEnd end{[] {
    dropout_key() = {};
    norm_communicator() = nullptr;
  }};
  dropout_key() = {state.config.seed, samples.step, samples.numbers};
  norm_communicator() = state.norm_over;
  state.labels = labels_of(samples, state.place);
  state.logits = state.run(pictures_of(samples, state.shape, state.place));
  state.loss = state.model->loss(state.logits, state.labels, state.config.label_smoothing);
}

// A gradient is autograd's own, once; whoever wants it has it copied here and now.
void Replica::backward(double divisor, const std::function<void(size_t, const float*)>& ready) {
  State& state = *state_;
  const AtEnd end{[&state] {
    state.ready = nullptr;
    for (torch::Tensor& one : state.tensors) one.mutable_grad() = torch::Tensor();  // of a torn one
  }};
  state.ready = [&](size_t i) {
    torch::Tensor& gradient = state.tensors[i].mutable_grad();
    ready(i, dense_like(state.tensors[i], gradient).data_ptr<float>());
    gradient = torch::Tensor();
  };
  (state.loss / divisor).backward();
}

Score Replica::score() {
  State& state = *state_;
  const Score score = score_of(state.logits, state.labels, state.loss);
  state.logits = state.labels = state.loss = torch::Tensor();
  return score;
}

Score Replica::evaluate(const Samples& samples) {
  torch::NoGradGuard guard;
  state_->model->eval();
  const torch::Tensor labels = labels_of(samples, state_->place);
  const torch::Tensor logits = state_->run(pictures_of(samples, state_->shape, state_->place));
  return score_of(logits, labels,
                  state_->model->loss(logits, labels, state_->config.label_smoothing));
}

TensorMap Replica::state() const {
  torch::NoGradGuard guard;
  TensorMap map;
  for (const auto& [name, tensor] : kept_tensors(*state_->model)) {
    const torch::Tensor plain = tensor.cpu().contiguous();
    NamedTensor& one = map[name];
    one.dtype = dtype_name(plain.scalar_type());
    for (const int64_t size : plain.sizes()) one.shape.push_back(static_cast<uint64_t>(size));
    one.bytes.assign(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
  }
  return map;
}

void Replica::load(const TensorMap& tensors) {
  torch::NoGradGuard guard;
  for (auto& [name, tensor] : kept_tensors(*state_->model)) {
    const auto found = tensors.find(name);
    if (found == tensors.end())
      throw Error(fmt::format("the checkpoint has no '{}'", name), ExitCode::kCheckpoint);
    const NamedTensor& one = found->second;
    if (one.dtype != dtype_name(tensor.scalar_type()) || one.bytes.size() != tensor.nbytes() ||
        !std::equal(one.shape.begin(), one.shape.end(), tensor.sizes().begin(),
                    tensor.sizes().end(),
                    [](uint64_t a, int64_t b) { return a == static_cast<uint64_t>(b); }))
      throw Error(fmt::format("the checkpoint's '{}' has another shape or type", name),
                  ExitCode::kCheckpoint);
    std::string bytes = one.bytes;
    tensor.copy_(torch::from_blob(bytes.data(), tensor.sizes(), tensor.scalar_type()));
  }
}

}  // namespace horon::train
