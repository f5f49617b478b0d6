#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "horon/device/buffer.h"

// Conversions between LibTorch's types and ours, and the only hook into its backward pass.
namespace horon::train {

torch::Device torch_device(Device device);
Device device_under(const torch::Tensor& tensor);
// UsageError that names the tensor if its type cannot be sent.
DType dtype_of(const torch::Tensor& tensor, const std::string& name);
torch::ScalarType scalar_type_of(DType dtype);

// The elements of a contiguous tensor, in its own memory, which the tensor still owns.
BufferView view_of_tensor(const torch::Tensor& dense, const std::string& name);
// A tensor over memory owned by somebody else, with the sizes of `like` and, if `like` has no gaps,
// its strides.
torch::Tensor tensor_over(const BufferView& view, const torch::Tensor& like);
void zero(const BufferView& view);
// The stream (cudaStream_t) on which this thread queues work on the tensor; null on the CPU.
void* current_stream(const torch::Tensor& tensor);
// The gradient, or a copy of it, in the memory order of the parameter's elements.
torch::Tensor dense_like(const torch::Tensor& parameter, const torch::Tensor& gradient);

// Calls ready(i) when parameters[i].grad() is complete, during the backward pass and on its thread.
// While this object exists, nobody else may set such a hook on these parameters.
class GradientHooks {
 public:
  GradientHooks(std::vector<torch::Tensor> parameters, std::function<void(size_t)> ready);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<torch::Tensor> parameters_;
};

}  // namespace horon::train
