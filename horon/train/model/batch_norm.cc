// Batch norm over all ranks: one gathering of means and variances forward, one sum backward.
#include "horon/comm/communicator.h"
#include "horon/train/model/model.h"

namespace horon::train {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr Milliseconds kPatience{600'000};  // a rank may be writing a checkpoint

struct Moments {
  Tensor mean;
  Tensor variance;  // biased
  double count = 0;
};

// Each rank's count, means and sums of squared deviations, put together in f64.
Moments moments_of(const Tensor& x, Communicator& comm) {
  const int64_t channels = x.size(1);
  const Tensor wide = x.to(torch::kFloat32);
  const auto [variance, mean] = torch::var_mean(wide, torch::IntArrayRef({0, 2, 3}), false);
  const double count = static_cast<double>(x.numel()) / static_cast<double>(channels);
  Tensor mine =
      torch::cat({torch::full({1}, count, torch::kFloat64), mean.to(torch::kCPU, torch::kFloat64),
                  variance.to(torch::kCPU, torch::kFloat64)});
  const BufferView view{
      mine.data_ptr<double>(), static_cast<uint64_t>(mine.numel()), DType::kF64, {}};
  const Gathered all = comm.all_gather(view, {.name = "batch-norm moments", .timeout = kPatience});
  const Tensor rows = torch::from_blob(const_cast<double*>(all.data.as<double>().data()),
                                       {comm.size(), 1 + 2 * channels}, torch::kFloat64);
  const Tensor counts = rows.narrow(1, 0, 1);
  const Tensor means = rows.narrow(1, 1, channels);
  const Tensor variances = rows.narrow(1, 1 + channels, channels);
  Moments found;
  found.count = counts.sum().item<double>();
  const Tensor centre = (means * counts).sum(0) / found.count;
  const Tensor spread = ((variances + (means - centre).square()) * counts).sum(0) / found.count;
  found.mean = centre.to(torch::kFloat32).to(x.device());
  found.variance = spread.to(torch::kFloat32).to(x.device());
  return found;
}

Tensor along_channels(const Tensor& values) { return values.view({1, -1, 1, 1}); }

struct SyncedNorm : torch::autograd::Function<SyncedNorm> {
  // NOLINTNEXTLINE(readability-function-size): apply() wants all of them, one by one
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, const Tensor& mean, const Tensor& inverse, double count,
                        Communicator* comm) {
    const Tensor normal = (x.to(torch::kFloat32) - along_channels(mean)) * along_channels(inverse);
    context->save_for_backward({normal, weight, inverse});
    context->saved_data["count"] = count;
    context->saved_data["comm"] = reinterpret_cast<int64_t>(comm);
    return (normal * along_channels(weight) + along_channels(bias)).to(x.scalar_type());
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor& normal = saved[0];
    const Tensor dy = gradients[0].to(torch::kFloat32);
    const Tensor bias = dy.sum({0, 2, 3});
    const Tensor weight = (dy * normal).sum({0, 2, 3});
    Tensor sums = torch::cat({bias, weight}).to(torch::kCPU, torch::kFloat64).contiguous();
    auto* comm = reinterpret_cast<Communicator*>(context->saved_data["comm"].toInt());
    comm->all_reduce(
        BufferView{sums.data_ptr<double>(), static_cast<uint64_t>(sums.numel()), DType::kF64, {}},
        {.name = "batch-norm gradients", .timeout = kPatience});
    sums = (sums / context->saved_data["count"].toDouble()).to(torch::kFloat32).to(dy.device());
    const int64_t channels = bias.numel();
    const Tensor dx = (dy - along_channels(sums.narrow(0, 0, channels)) -
                       normal * along_channels(sums.narrow(0, channels, channels))) *
                      along_channels(saved[1] * saved[2]);
    return {dx.to(gradients[0].scalar_type()), weight, bias, {}, {}, {}, {}};
  }
};

}  // namespace

Communicator*& norm_communicator() {
  // A layer inside a model has no parameter through which it could get the communicator.
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
  thread_local Communicator* current = nullptr;
  return current;
}

Tensor NormImpl::forward(const Tensor& x) {
  Communicator* comm = norm_communicator();
  if (comm == nullptr || !is_training()) return BatchNorm2dImpl::forward(x);
  Moments moments;
  {
    torch::NoGradGuard guard;
    moments = moments_of(x, *comm);
    const double factor = options.momentum().value();
    running_mean.mul_(1 - factor).add_(moments.mean, factor);
    running_var.mul_(1 - factor)
        .add_(moments.variance, factor * moments.count / std::max(moments.count - 1, 1.0));
    num_batches_tracked += 1;
  }
  return SyncedNorm::apply(x, weight, bias, moments.mean,
                           torch::rsqrt(moments.variance + options.eps()), moments.count, comm);
}

}  // namespace horon::train
