#include "horon/train/torch_bridge.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <utility>

#include "horon/base/error.h"

namespace horon::train {
namespace {

// The types that both sides have.
constexpr std::array<std::pair<torch::ScalarType, DType>, 8> kTypes = {{
    {torch::kFloat32, DType::kF32},
    {torch::kFloat64, DType::kF64},
    {torch::kFloat16, DType::kF16},
    {torch::kBFloat16, DType::kBF16},
    {torch::kInt64, DType::kI64},
    {torch::kInt32, DType::kI32},
    {torch::kUInt8, DType::kU8},
    {torch::kBool, DType::kBool},
}};

class Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(std::function<void(size_t)> ready, size_t i) : ready_(std::move(ready)), i_(i) {}
  void operator()(const torch::autograd::Variable&) override { ready_(i_); }

 private:
  std::function<void(size_t)> ready_;
  size_t i_;
};

}  // namespace

torch::Device torch_device(Device device) {
  return device.is_cpu() ? torch::Device(torch::kCPU)
                         : torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(device.index));
}

Device device_under(const torch::Tensor& tensor) {
  if (tensor.is_cpu()) return {};
  return {DeviceKind::kCuda, tensor.get_device()};
}

DType dtype_of(const torch::Tensor& tensor, const std::string& name) {
  for (const auto& [theirs, ours] : kTypes)
    if (theirs == tensor.scalar_type()) return ours;
  throw UsageError(fmt::format("'{}' has a type that cannot be sent", name));
}

torch::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [theirs, ours] : kTypes)
    if (ours == dtype) return theirs;
  throw UsageError("LibTorch has no such type");
}

BufferView view_of_tensor(const torch::Tensor& dense, const std::string& name) {
  return {dense.data_ptr(), static_cast<uint64_t>(dense.numel()), dtype_of(dense, name),
          device_under(dense)};
}

torch::Tensor tensor_over(const BufferView& view, const torch::Tensor& like) {
  const auto how =
      torch::TensorOptions().dtype(scalar_type_of(view.dtype)).device(torch_device(view.device));
  return like.is_non_overlapping_and_dense()
             ? torch::from_blob(view.data, like.sizes(), like.strides(), how)
             : torch::from_blob(view.data, like.sizes(), how);
}

void zero(const BufferView& view) {
  const auto how = torch::TensorOptions().dtype(torch::kUInt8).device(torch_device(view.device));
  torch::from_blob(view.data, {static_cast<int64_t>(view.bytes())}, how).zero_();
}

void* current_stream(const torch::Tensor& tensor) {
  if (tensor.is_cpu()) return nullptr;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  return guard.getStream(tensor.device()).native_handle();
}

torch::Tensor dense_like(const torch::Tensor& parameter, const torch::Tensor& gradient) {
  const bool same =
      gradient.dim() != 4 || gradient.is_contiguous(torch::MemoryFormat::ChannelsLast);
  if (same && gradient.is_non_overlapping_and_dense()) return gradient;
  return parameter.dim() == 4 ? gradient.contiguous(torch::MemoryFormat::ChannelsLast)
                              : gradient.contiguous();
}

GradientHooks::GradientHooks(std::vector<torch::Tensor> parameters,
                             std::function<void(size_t)> ready)
    : parameters_(std::move(parameters)) {
  for (size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i],
                                                   std::make_unique<Hook>(ready, i));
}

GradientHooks::~GradientHooks() {
  for (const torch::Tensor& one : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(one, nullptr);
}

}  // namespace horon::train
