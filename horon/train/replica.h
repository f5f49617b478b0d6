#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/device/buffer.h"
#include "horon/train/config.h"
#include "horon/train/safetensors.h"

namespace horon {
class Communicator;
}

namespace horon::train {

struct ModelShape {
  int classes = 10;
  int image_size = 32;
  int channels = 3;
};

class Model;  // model/model.h
using ModelMaker = std::function<std::shared_ptr<Model>(const ModelShape& shape)>;

// An array of the model that others read and write in place.
struct ModelArray {
  std::string name;
  float* data = nullptr;
  uint64_t count = 0;
  bool decays = false;  // parameters: weight decay applies
  Device device = {};
  BufferView view() const { return {data, count, DType::kF32, device}; }
};

struct Score {  // sums over samples
  double loss = 0;
  double top1 = 0;
  double top5 = 0;
  double count = 0;
};

// A model on one device, with LibTorch behind it and none of its types in front. One thread at a
// time; several replicas may live in one process.
class Replica {
 public:
  struct Options {
    int threads = 1;
    Device device = {};
    ModelMaker model = {};  // empty: config.model, by name
  };
  Replica(const TrainConfig& config, const ModelShape& shape, const Options& options);
  ~Replica();

  // From now on batch norm takes its statistics over the samples of all these ranks; null: over its
  // own. UsageError for a model whose batch norm cannot.
  void norm_over(Communicator* ranks);

  const std::vector<ModelArray>& parameters() const;
  const std::vector<ModelArray>& statistics() const;  // running means and variances
  uint64_t parameter_count() const;
  std::string type_name() const;  // of the model's class, without its namespaces

  struct Samples {
    const float* pixels = nullptr;  // count x channels x size x size, where the replica is
    std::span<const int64_t> labels;
    std::span<const uint64_t> numbers;  // for dropout
    uint64_t step = 0;
  };
  // Gradients of (sum of losses) / divisor: on_gradient(i, values) for each parameter, as soon as
  // it is there, in the parameter's own layout and place; those without one get none. On a GPU
  // "there" means queued; after_backward() when all are, before the score is waited for.
  Score train(const Samples& samples, double divisor,
              const std::function<void(size_t parameter, const float* gradient)>& on_gradient,
              const std::function<void()>& after_backward = {});
  Score evaluate(const Samples& samples);

  // Values of all statistics, one after the other, and back.
  std::vector<float> read_statistics() const;
  void write_statistics(const float* values);

  TensorMap state() const;
  // Error (exit code 13) for missing or other tensors.
  void load(const TensorMap& tensors);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Whether LibTorch can use a GPU here; loads its CUDA part. The reason if not.
bool has_cuda(std::string* why = nullptr);

// LibTorch's version, and the instructions it uses on this CPU: "2.15.0, AVX512".
std::string torch_kind();

// The same model trained by LibTorch alone, in the plainest loop: what ours is measured against.
class BareLoop {
 public:
  BareLoop(const TrainConfig& config, const ModelShape& shape, Device device = {});
  ~BareLoop();
  void step(const Replica::Samples& samples);
  TensorMap state() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace horon::train
