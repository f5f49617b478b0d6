#include "horon/train/model/model.h"

#include <mutex>

#include "horon/base/registry.h"

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

}  // namespace

torch::Tensor Model::loss(const torch::Tensor& logits, const torch::Tensor& labels,
                          double label_smoothing) const {
  return torch::nn::functional::cross_entropy(logits, labels,
                                              torch::nn::functional::CrossEntropyFuncOptions()
                                                  .reduction(torch::kSum)
                                                  .label_smoothing(label_smoothing));
}

void register_model(const std::string& name, ModelMaker maker) {
  registry().add(name, std::move(maker));
}

std::shared_ptr<Model> make_model(const std::string& name, const ModelShape& shape) {
  add_builtin_models();
  return registry().find(name)(shape);
}

}  // namespace horon::train
