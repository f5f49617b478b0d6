#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/device/buffer.h"
#include "horon/train/config.h"
#include "horon/train/model/shape.h"
#include "horon/train/safetensors.h"

namespace horon {
class Communicator;
}

namespace horon::train {

// An array of the model that others read and write in place. The replica owns the memory.
struct ModelArray {
  std::string name;
  float* data = nullptr;
  uint64_t count = 0;
  bool decays = false;  // weight decay applies (parameters only)
  Device device = {};
  BufferView view() const { return {data, count, DType::kF32, device}; }
};

struct Score {  // sums over samples
  double loss = 0;
  double top1 = 0;
  double top5 = 0;
  double count = 0;
};

// A model on one device. Uses LibTorch, but has none of its types in this header. One thread at a
// time; a process may have several replicas.
class Replica {
 public:
  struct Options {
    int threads = 1;
    Device device = {};
    ModelMaker model = {};  // empty: config.model names it
  };
  // UsageError: the model is unknown or does not fit the shape, or there is no such GPU.
  Replica(const TrainConfig& config, const ModelShape& shape, const Options& options);
  ~Replica();

  // From now on batch norm takes its statistics over the samples of all these ranks; null: over its
  // own samples. UsageError if the model's batch norm cannot do that.
  void norm_over(Communicator* ranks);

  const std::vector<ModelArray>& parameters() const;
  const std::vector<ModelArray>& statistics() const;  // running means and variances
  uint64_t parameter_count() const;
  std::string type_name() const;  // class name of the model, without namespaces

  struct Samples {
    const float* pixels = nullptr;  // count x channels x size x size, on the replica's device
    std::span<const int64_t> labels;
    std::span<const uint64_t> numbers;  // for dropout
    uint64_t step = 0;
  };
  // A training pass is forward, backward, score, in this order. Forward runs the network and keeps
  // what backward() needs. need(i) is called before parameter i is used (for all of them before the
  // first use).
  void forward(const Samples& samples, const std::function<void(size_t parameter)>& need = {});
  // Computes gradients of (sum of losses) / divisor. ready(i, values) is called for each parameter
  // as soon as its gradient exists, in the parameter's layout and memory; parameters without a
  // gradient get no call. `values` are valid during the call. On a GPU the gradient may only be
  // queued: copy it with queued work, too.
  void backward(double divisor,
                const std::function<void(size_t parameter, const float* gradient)>& ready);
  // Of the samples of the last forward pass. Waits for a GPU.
  Score score();
  Score evaluate(const Samples& samples);

  // Reads or writes the values of all statistics, one after another.
  std::vector<float> read_statistics() const;
  void write_statistics(const float* values);
  // Saves them in the replica's own memory, without waiting for a GPU; and restores them.
  void keep_statistics();
  void restore_statistics();

  // Parameters and statistics, by name.
  TensorMap state() const;
  // Error (exit code 13) if a tensor is missing or has another shape or type.
  void load(const TensorMap& tensors);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether LibTorch can use a GPU here; loads its CUDA part. If not, `why` receives the reason.
bool has_cuda(std::string* why = nullptr);

// LibTorch's version and the instruction set it uses on this CPU: "2.15.0, AVX512".
std::string torch_kind();

}  // namespace horon::train
