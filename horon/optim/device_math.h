#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/device/stream.h"
#include "horon/optim/update_rule.h"

namespace horon::optim {

// What training computes on one GPU apart from the network. Calls are queued behind LibTorch's work
// (the device's default stream) and return at once, except copy() and wait(). One thread at a time.
// Implemented by a part (libhoron_train_cuda.so, from cuda/).
class DeviceMath {
 public:
  virtual ~DeviceMath() = default;
  // to := from, or to += from if `adds`. Adds the number of values that are not finite to *flaws.
  virtual void take(float* to, const float* from, uint64_t count, bool adds, uint32_t* flaws) = 0;
  virtual void clear(void* data, uint64_t bytes) = 0;

  // Weights and gradients of one tensor, and where its elements are in the optimizer's arrays.
  struct Segment {
    float* parameter = nullptr;
    const float* gradient = nullptr;
    uint64_t count = 0;
    uint64_t first = 0;
    bool decays = true;
  };
  // The segments that every step updates.
  struct Table {
    virtual ~Table() = default;
  };
  virtual std::unique_ptr<Table> make_table(std::span<const Segment> segments) = 0;
  // One step of the optimizer that `rule` names (optimizer_table.h); `state`: its arrays, in order.
  virtual void update(const Table& table, const UpdateRule& rule,
                      std::span<float* const> state) = 0;

  // Copies after all queued work, in both directions and within the device. Blocks.
  virtual void copy(void* to, const void* from, uint64_t bytes) = 0;
  // mark() returns a point in the queue; wait() blocks until the device has reached it.
  virtual std::shared_ptr<void> mark() = 0;
  virtual void wait(const std::shared_ptr<void>& mark) = 0;
};

// The device of a replica: a GPU, or the CPU if there is no runtime.
struct Accelerator {
  std::shared_ptr<DeviceRuntime> runtime;
  std::shared_ptr<DeviceMath> math;
  Device device;
  bool is_cpu() const { return runtime == nullptr; }
};

// Opens GPU `index`, modulo the number of GPUs. `runtime`: one that is already open. UsageError
// that says what is missing.
Accelerator open_accelerator(const std::vector<std::string>& part_folders, int index,
                             std::shared_ptr<DeviceRuntime> runtime = nullptr);

}  // namespace horon::optim
