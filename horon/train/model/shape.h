#pragma once

#include <functional>
#include <memory>

namespace horon::train {

// The images and classes that a network is built for. A value.
struct ModelShape {
  int classes = 10;
  int image_size = 32;  // height and width, pixels
  int channels = 3;
};

class Model;  // defined in model.h, which needs LibTorch
using ModelMaker = std::function<std::shared_ptr<Model>(const ModelShape& shape)>;

}  // namespace horon::train
