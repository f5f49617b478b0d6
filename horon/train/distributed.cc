#include "horon/train/distributed.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "horon/base/error.h"
#include "horon/train/gradient_buckets.h"
#include "horon/train/torch_bridge.h"

namespace horon::train {
namespace {

void broadcast_tensor(Communicator& comm, const torch::Tensor& tensor, const std::string& name,
                      int root) {
  torch::NoGradGuard guard;
  const torch::Tensor plain = tensor.detach().cpu().contiguous();
  comm.broadcast(view_of_tensor(plain, name), root, {.name = name});
  if (comm.rank() != root) tensor.detach().copy_(plain);
}

}  // namespace

struct DistributedOptimizer::State {
  struct One {
    torch::Tensor parameter;
    torch::Tensor grad;      // in the bucket
    bool is_staged = false;  // that is elsewhere: .grad is autograd's own
    uint64_t passes = 0;
  };
  Session& session;
  std::unique_ptr<torch::optim::Optimizer> inner;
  Options options;
  std::vector<One> all;
  std::unique_ptr<GradientBuckets> buckets;
  std::unique_ptr<GradientHooks> hooks;
  uint64_t mended = 0;
  bool waited = false;
  uint64_t steps = 0;
  // The collective averages over the ranks that contribute. Over passes LibTorch does on GPUs,
  // since NCCL knows no factors; elsewhere a factor on the result.
  bool is_on_gpus = false;
  bool has_failed = false;  // the gradients of this step are not those of all ranks

  // Moves a gradient into its bucket if it is elsewhere.
  void mend(One& one) {
    torch::Tensor& grad = one.parameter.mutable_grad();
    if (grad.defined() && grad.data_ptr() == one.grad.data_ptr()) return;
    torch::NoGradGuard guard;
    if (grad.defined()) {
      one.grad.copy_(grad);
    } else {
      one.grad.zero_();
    }
    if (one.is_staged) return;
    ++mended;
    grad = one.grad;
  }
  double factor_of_passes() const {
    return options.averages ? 1.0 / static_cast<double>(options.backward_passes_per_step) : 1.0;
  }
  void submit(size_t i) {
    mend(all[i]);
    const bool tells = !options.codec.empty();
    buckets->submit(i, when_ready(all[i].grad), tells ? std::optional(steps) : std::nullopt);
  }
  // On a GPU the gradient is only queued when its hook runs: the reducing thread waits for it.
  std::function<void()> when_ready(const torch::Tensor& gradient) const {
    if (gradient.is_cpu()) return {};
    DeviceRuntime* device = session.world().device();
    return [device, mark = device->mark(current_stream(gradient), gradient.get_device())] {
      device->wait_event(mark.get());
    };
  }
  // Runs a part of sharing gradients; if it fails, step() is refused until zero_grad().
  template <typename Part>
  void guard(const Part& part) {
    try {
      part();
    } catch (...) {
      has_failed = true;
      throw;
    }
  }
  void ready(size_t i) {
    One& one = all[i];
    if (buckets->is_submitted(i))
      throw UsageError(
          fmt::format("'{}' got another gradient before step(): set backward_passes_per_step",
                      buckets->name(i)));
    if (!one.is_staged && ++one.passes == options.backward_passes_per_step) submit(i);
  }
  void synchronize() {
    if (waited) return;
    if (has_failed)
      throw UsageError(
          "the gradients of this step were not reduced, see the error before; if all ranks failed "
          "alike, call zero_grad() on all of them and repeat the step");
    guard([&] {
      for (size_t i = 0; i < all.size(); ++i) {
        if (!buckets->is_submitted(i)) submit(i);
      }
      buckets->wait();
    });
    torch::NoGradGuard guard;
    const double after = is_on_gpus ? factor_of_passes() : 1.0;
    for (One& one : all) {
      if (after != 1.0) one.grad.mul_(after);
      if (one.is_staged) one.parameter.mutable_grad() = one.grad.to(one.parameter.device());
    }
    waited = true;
  }
  void begin() {
    for (One& one : all) one.passes = 0;
    buckets->begin();
    waited = has_failed = false;
  }
};

DistributedOptimizer::DistributedOptimizer(Session& session,
                                           std::unique_ptr<torch::optim::Optimizer> inner,
                                           const NamedTensors& parameters, const Options& options)
    : state_(new State{session, std::move(inner), options, {}, {}, {}}) {
  State& state = *state_;
  require(state.inner != nullptr, "DistributedOptimizer: the optimizer is null");
  require(options.backward_passes_per_step > 0, "backward_passes_per_step: at least 1");
  std::vector<TensorSpec> specs;
  std::vector<torch::Tensor> tensors;
  for (const auto& item : parameters) {
    if (!item.value().requires_grad()) continue;
    TensorSpec spec;
    spec.name = item.key();
    spec.count = static_cast<uint64_t>(item.value().numel());
    spec.dtype = dtype_of(item.value(), spec.name);
    if (session.world().device() != nullptr) spec.device = device_under(item.value());
    specs.push_back(spec);
    tensors.push_back(item.value());
  }
  NamedOptions how;
  how.codec = options.codec;
  state.is_on_gpus =
      !specs.empty() && std::none_of(specs.begin(), specs.end(),
                                     [](const TensorSpec& spec) { return spec.device.is_cpu(); });
  if (options.averages) how.op = ReduceOp::kAverage;
  if (!state.is_on_gpus) how.postscale = state.factor_of_passes();
  state.buckets = std::make_unique<GradientBuckets>(session.runtime(), std::move(specs),
                                                    std::vector<TensorSpec>(), how);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const torch::Tensor grad = tensor_over(state.buckets->view(i), tensors[i]);
    state.all.push_back({tensors[i], grad, grad.device() != tensors[i].device()});
  }
  state.hooks = std::make_unique<GradientHooks>(
      std::move(tensors), [&state](size_t i) { state.guard([&] { state.ready(i); }); });
  zero_grad();
}

DistributedOptimizer::~DistributedOptimizer() {
  state_->hooks.reset();
  for (State::One& one : state_->all) {
    if (!one.is_staged) one.parameter.mutable_grad() = torch::Tensor();
  }
}

void DistributedOptimizer::zero_grad() {
  torch::NoGradGuard guard;
  state_->buckets->wait();  // gradients that will not be used
  state_->begin();
  for (const OwnedBuffer& bucket : state_->buckets->memory()) zero(bucket.view());
  for (State::One& one : state_->all)
    one.parameter.mutable_grad() = one.is_staged ? torch::Tensor() : one.grad;
}

void DistributedOptimizer::synchronize() { state_->synchronize(); }

void DistributedOptimizer::step() {
  state_->synchronize();
  state_->inner->step();
  ++state_->steps;
  state_->begin();
}

uint64_t DistributedOptimizer::steps() const { return state_->steps; }
void DistributedOptimizer::set_steps(uint64_t steps) { state_->steps = steps; }

torch::optim::Optimizer& DistributedOptimizer::inner() { return *state_->inner; }
uint64_t DistributedOptimizer::mended() const { return state_->mended; }

void broadcast_parameters(Session& session, const NamedTensors& tensors, int root) {
  for (const auto& item : tensors) {
    if (item.value().defined()) broadcast_tensor(session.world(), item.value(), item.key(), root);
  }
}

void broadcast_parameters(Session& session, torch::nn::Module& module, int root) {
  broadcast_parameters(session, module.named_parameters(), root);
  broadcast_parameters(session, module.named_buffers(), root);
}

void average_statistics(Session& session, torch::nn::Module& module) {
  torch::NoGradGuard guard;
  for (const auto& item : module.named_buffers()) {
    torch::Tensor buffer = item.value();
    if (!buffer.defined() || at::isIntegralType(buffer.scalar_type(), /*includeBool=*/true))
      continue;
    torch::Tensor plain = buffer.detach().cpu().contiguous();
    session.world().all_reduce(view_of_tensor(plain, item.key()),
                               {.op = ReduceOp::kAverage, .name = item.key()});
    buffer.copy_(plain);
  }
}

namespace {

using torch::optim::OptimizerParamState;

// A kind of optimizer: the tensors and numbers of its state, and how to make an empty one.
struct Kind {
  std::vector<std::function<torch::Tensor&(OptimizerParamState&)>> tensors;
  std::function<int64_t(OptimizerParamState&)> steps;
  std::function<void(OptimizerParamState&, int64_t)> set_steps;
  std::function<std::unique_ptr<OptimizerParamState>()> make;
};

template <typename State, typename... Getters>
Kind counted_kind(Getters... getters) {
  Kind kind;
  (kind.tensors.push_back([getters](OptimizerParamState& any) -> torch::Tensor& {
    return getters(static_cast<State&>(any));
  }),
   ...);
  kind.steps = [](OptimizerParamState& any) { return static_cast<State&>(any).step(); };
  kind.set_steps = [](OptimizerParamState& any, int64_t n) { static_cast<State&>(any).step(n); };
  kind.make = [] { return std::make_unique<State>(); };
  return kind;
}

Kind kind_of(const torch::optim::Optimizer& optimizer) {
  namespace optim = torch::optim;
  if (dynamic_cast<const optim::SGD*>(&optimizer) != nullptr) {
    Kind kind;
    kind.tensors = {[](OptimizerParamState& any) -> torch::Tensor& {
      return static_cast<optim::SGDParamState&>(any).momentum_buffer();
    }};
    kind.make = [] { return std::make_unique<optim::SGDParamState>(); };
    return kind;
  }
  if (dynamic_cast<const optim::Adam*>(&optimizer) != nullptr)
    return counted_kind<optim::AdamParamState>(
        [](optim::AdamParamState& s) -> torch::Tensor& { return s.exp_avg(); },
        [](optim::AdamParamState& s) -> torch::Tensor& { return s.exp_avg_sq(); },
        [](optim::AdamParamState& s) -> torch::Tensor& { return s.max_exp_avg_sq(); });
  if (dynamic_cast<const optim::AdamW*>(&optimizer) != nullptr)
    return counted_kind<optim::AdamWParamState>(
        [](optim::AdamWParamState& s) -> torch::Tensor& { return s.exp_avg(); },
        [](optim::AdamWParamState& s) -> torch::Tensor& { return s.exp_avg_sq(); },
        [](optim::AdamWParamState& s) -> torch::Tensor& { return s.max_exp_avg_sq(); });
  if (dynamic_cast<const optim::RMSprop*>(&optimizer) != nullptr)
    return counted_kind<optim::RMSpropParamState>(
        [](optim::RMSpropParamState& s) -> torch::Tensor& { return s.square_avg(); },
        [](optim::RMSpropParamState& s) -> torch::Tensor& { return s.momentum_buffer(); },
        [](optim::RMSpropParamState& s) -> torch::Tensor& { return s.grad_avg(); });
  if (dynamic_cast<const optim::Adagrad*>(&optimizer) != nullptr)
    return counted_kind<optim::AdagradParamState>(
        [](optim::AdagradParamState& s) -> torch::Tensor& { return s.sum(); });
  throw UsageError(
      "broadcast_optimizer_state knows SGD, Adam, AdamW, RMSprop and Adagrad; broadcast the state "
      "of others by broadcast_parameters");
}

// Numbers that say what a parameter's state has: there at all, each tensor, the steps.
std::vector<int64_t> describe(const Kind& kind, OptimizerParamState* state) {
  std::vector<int64_t> has = {state != nullptr ? 1 : 0};
  for (const auto& tensor : kind.tensors)
    has.push_back(state != nullptr && tensor(*state).defined() ? 1 : 0);
  has.push_back(state != nullptr && kind.steps ? kind.steps(*state) : 0);
  return has;
}

}  // namespace

void broadcast_optimizer_state(Session& session, torch::optim::Optimizer& optimizer, int root) {
  const Kind kind = kind_of(optimizer);
  Communicator& comm = session.world();
  torch::NoGradGuard guard;
  for (auto& group : optimizer.param_groups()) {
    std::array<double, 1> rate = {group.options().get_lr()};
    comm.broadcast(view_of(rate), root, {.name = "learning rate"});
    group.options().set_lr(rate[0]);
    for (torch::Tensor& parameter : group.params()) {
      auto& states = optimizer.state();
      const auto key = parameter.unsafeGetTensorImpl();
      const auto found = states.find(key);
      std::vector<int64_t> has =
          describe(kind, found == states.end() ? nullptr : found->second.get());
      comm.broadcast(view_of(has), root, {.name = "optimizer state"});
      if (has.front() == 0) {
        states.erase(key);
        continue;
      }
      auto& state = states[key];
      if (state == nullptr) state = kind.make();
      for (size_t i = 0; i < kind.tensors.size(); ++i) {
        torch::Tensor& tensor = kind.tensors[i](*state);
        if (has[i + 1] == 0) {
          tensor = torch::Tensor();
          continue;
        }
        if (!tensor.defined()) tensor = torch::zeros_like(parameter);
        broadcast_tensor(comm, tensor, "optimizer state", root);
      }
      if (kind.set_steps) kind.set_steps(*state, has.back());
    }
  }
}

}  // namespace horon::train
