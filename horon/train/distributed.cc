#include "horon/train/distributed.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "horon/base/error.h"

namespace horon::train {
namespace {

DType dtype_of(const torch::Tensor& tensor, const std::string& name) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      return DType::kF32;
    case torch::kFloat64:
      return DType::kF64;
    case torch::kFloat16:
      return DType::kF16;
    case torch::kBFloat16:
      return DType::kBF16;
    case torch::kInt64:
      return DType::kI64;
    case torch::kInt32:
      return DType::kI32;
    case torch::kUInt8:
      return DType::kU8;
    case torch::kBool:
      return DType::kBool;
    default:
      throw UsageError(fmt::format("'{}' has a type that cannot be sent", name));
  }
}

class Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(std::function<void()> ready) : ready_(std::move(ready)) {}
  void operator()(const torch::autograd::Variable&) override { ready_(); }

 private:
  std::function<void()> ready_;
};

// Of a tensor in host memory, without gaps.
BufferView view_of_tensor(const torch::Tensor& plain, const std::string& name) {
  return {plain.data_ptr(), static_cast<uint64_t>(plain.numel()), dtype_of(plain, name), {}};
}

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
    std::string name;
    torch::Tensor parameter;
    torch::Tensor grad;  // in the bucket
    BufferView view;
    uint64_t passes = 0;
    bool submitted = false;
  };
  Session& session;
  std::unique_ptr<torch::optim::Optimizer> inner;
  Options options;
  BucketMemory memory;
  std::vector<One> all;
  std::vector<Work> works;
  uint64_t mended = 0;
  bool waited = false;
  uint64_t steps = 0;

  // Whether the gradient is where it should be; if not, it is brought there.
  void mend(One& one) {
    torch::Tensor& grad = one.parameter.mutable_grad();
    if (grad.defined() && grad.data_ptr() == one.grad.data_ptr()) return;
    torch::NoGradGuard guard;
    if (!one.parameter.is_cpu()) {  // staged
      if (grad.defined()) {
        one.grad.copy_(grad);
      } else {
        one.grad.zero_();
      }
      return;
    }
    ++mended;
    if (grad.defined()) {
      one.grad.copy_(grad);
    } else {
      one.grad.zero_();
    }
    grad = one.grad;
  }
  double factor() const {
    return options.averages ? 1.0 / (static_cast<double>(session.size()) *
                                     static_cast<double>(options.backward_passes_per_step))
                            : 1.0;
  }
  void submit(One& one) {
    mend(one);
    NamedOptions how;
    how.codec = options.codec;
    if (!options.codec.empty()) how.step = steps;
    how.postscale = factor();
    works.push_back(session.runtime().all_reduce(one.name, one.view, how));
    one.submitted = true;
  }
  void ready(One& one) {
    if (one.submitted)
      throw UsageError(fmt::format(
          "'{}' got another gradient before step(): set backward_passes_per_step", one.name));
    if (!one.parameter.is_cpu()) return;
    if (++one.passes == options.backward_passes_per_step) submit(one);
  }
  void synchronize() {
    if (waited) return;
    for (One& one : all) {
      if (!one.submitted) submit(one);
    }
    for (const Work& work : works) work.wait();
    works.clear();
    torch::NoGradGuard guard;
    for (One& one : all) {
      if (!one.parameter.is_cpu())
        one.parameter.mutable_grad() = one.grad.to(one.parameter.device());
    }
    waited = true;
  }
  void begin() {
    for (One& one : all) {
      one.passes = 0;
      one.submitted = false;
    }
    waited = false;
  }
};

DistributedOptimizer::DistributedOptimizer(Session& session,
                                           std::unique_ptr<torch::optim::Optimizer> inner,
                                           const NamedTensors& parameters, const Options& options)
    : state_(new State{session, std::move(inner), options, {}, {}, {}, 0, false, 0}) {
  require(state_->inner != nullptr, "DistributedOptimizer: there is no optimizer inside");
  require(options.backward_passes_per_step > 0, "backward_passes_per_step: at least 1");
  for (const auto& item : parameters) {
    if (item.value().requires_grad()) state_->all.push_back({item.key(), item.value(), {}, {}});
  }
  std::vector<TensorSpec> specs;  // gradients come from the last to the first
  for (size_t i = state_->all.size(); i-- > 0;) {
    TensorSpec spec;
    spec.name = state_->all[i].name;
    spec.count = static_cast<uint64_t>(state_->all[i].parameter.numel());
    spec.dtype = dtype_of(state_->all[i].parameter, spec.name);
    spec.postscale = state_->factor();
    spec.codec = options.codec;
    specs.push_back(spec);
  }
  state_->memory = session.runtime().allocate_buckets(specs);
  for (size_t i = 0; i < state_->all.size(); ++i) {
    State::One& one = state_->all[i];
    one.view = state_->memory.views[state_->all.size() - 1 - i];
    const auto how = torch::TensorOptions().dtype(one.parameter.scalar_type());
    one.grad =
        one.parameter.is_non_overlapping_and_dense()
            ? torch::from_blob(one.view.data, one.parameter.sizes(), one.parameter.strides(), how)
            : torch::from_blob(one.view.data, one.parameter.sizes(), how);
    torch::autograd::impl::set_post_acc_grad_hooks(
        one.parameter,
        std::make_unique<Hook>([state = state_.get(), i] { state->ready(state->all[i]); }));
  }
  zero_grad();
}

DistributedOptimizer::~DistributedOptimizer() {
  for (State::One& one : state_->all) {
    torch::autograd::impl::set_post_acc_grad_hooks(one.parameter, nullptr);
    if (one.parameter.is_cpu()) one.parameter.mutable_grad() = torch::Tensor();
  }
}

void DistributedOptimizer::zero_grad() {
  torch::NoGradGuard guard;
  for (const Work& work : state_->works) work.wait();  // of gradients that nobody will use
  state_->works.clear();
  state_->begin();
  for (State::One& one : state_->all) {
    one.grad.zero_();
    one.parameter.mutable_grad() = one.parameter.is_cpu() ? one.grad : torch::Tensor();
  }
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
