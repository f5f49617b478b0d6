// Training's own work on a GPU: updates have the CPU's bits (LARS: to rounding), gradients are
// taken and looked at.
#include <cmath>
#include <iostream>
#include <limits>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/train/optimizer.h"

namespace {

using namespace horon;
using namespace horon::train;

constexpr std::array<uint64_t, 4> kCounts = {100'000, 1, 8193, 4096};

float number(uint64_t i) { return std::sin(static_cast<float>(i % 9973) * 0.731F) * 0.1F; }

// Largest relative difference after 100 steps.
double compare(const Accelerator& gpu, TrainConfig config) {
  uint64_t total = 0;
  for (const uint64_t count : kCounts) total += count;
  std::vector<float> weights(total);
  std::vector<float> gradients(total);
  for (uint64_t i = 0; i < total; ++i) weights[i] = number(i) + 0.2F;
  const OwnedBuffer w = gpu.runtime->allocate(total, DType::kF32, gpu.device.index);
  const OwnedBuffer g = gpu.runtime->allocate(total, DType::kF32, gpu.device.index);
  gpu.math->copy(w.view().data, weights.data(), total * 4);
  std::vector<Slice> here;
  std::vector<Slice> there;
  uint64_t first = 0;
  for (const uint64_t count : kCounts) {
    const bool decays = count != 4096;
    here.push_back({"x", weights.data() + first, gradients.data() + first, count, decays});
    there.push_back({"x", static_cast<float*>(w.view().data) + first,
                     static_cast<float*>(g.view().data) + first, count, decays});
    first += count;
  }
  const auto cpu = make_optimizer(config, here);
  const auto device = make_optimizer(config, there, gpu);
  for (uint64_t step = 0; step < 100; ++step) {
    for (uint64_t i = 0; i < total; ++i) gradients[i] = number(i * 7 + step * 13);
    gpu.math->copy(g.view().data, gradients.data(), total * 4);
    cpu->step(here, 0.01);
    device->step(there, 0.01);
  }
  std::vector<float> back(total);
  gpu.math->copy(back.data(), w.view().data, total * 4);
  double most = 0;
  for (uint64_t i = 0; i < total; ++i)
    most = std::max(most, std::abs(static_cast<double>(back[i]) - weights[i]) /
                              std::max(1e-3, std::abs(static_cast<double>(weights[i]))));
  return most;
}

void check_take(const Accelerator& gpu) {
  constexpr uint64_t kCount = 300'001;
  std::vector<float> values(kCount, 1.5F);
  values[7] = std::numeric_limits<float>::infinity();
  values[kCount - 1] = std::numeric_limits<float>::quiet_NaN();
  const OwnedBuffer from = gpu.runtime->allocate(kCount, DType::kF32, 0);
  const OwnedBuffer to = gpu.runtime->allocate(kCount, DType::kF32, 0);
  const OwnedBuffer flaws = gpu.runtime->allocate(1, DType::kI32, 0);
  gpu.math->clear(flaws.view().data, 4);
  gpu.math->copy(from.view().data, values.data(), kCount * 4);
  auto* flaw = static_cast<uint32_t*>(flaws.view().data);
  auto* target = static_cast<float*>(to.view().data);
  gpu.math->take(target, static_cast<const float*>(from.view().data), kCount, false, flaw);
  gpu.math->take(target, static_cast<const float*>(from.view().data), kCount, true, flaw);
  gpu.math->wait(gpu.math->mark());
  uint32_t count = 0;
  gpu.math->copy(&count, flaw, 4);
  gpu.math->copy(values.data(), target, kCount * 4);
  if (count != 4 || values[0] != 3.0F || values[kCount - 2] != 3.0F)
    throw Error("take: other numbers came back");
}

}  // namespace

int main() {
  try {
    const Accelerator gpu = open_accelerator(part_folders(""), 0);
    for (const char* name : {"sgd", "momentum", "nesterov", "adam", "lars"}) {
      TrainConfig config;
      set_field(config, "optimizer", name == std::string("nesterov") ? "momentum" : name);
      config.nesterov = name == std::string("nesterov");
      const double difference = compare(gpu, config);
      std::cout << name << ": largest difference " << difference << "\n";
      if (difference > (config.optimizer == OptimizerKind::kLars ? 1e-5 : 0.0))
        throw Error("too large");
    }
    check_take(gpu);
    std::cout << "ok\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
