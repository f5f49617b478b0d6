#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "horon/device/stream.h"
#include "horon/train/update_rule.h"

namespace horon::train {

// What training computes on one GPU besides the network. Calls are queued behind LibTorch's own
// work (the device's default stream) and return at once, but for copy() and wait(). A part
// (libhoron_train_cuda.so) has it.
class DeviceMath {
 public:
  virtual ~DeviceMath() = default;
  // to := from, or to += from. *flaws grows by the values that are not finite.
  virtual void take(float* to, const float* from, uint64_t count, bool adds, uint32_t* flaws) = 0;
  virtual void clear(void* data, uint64_t bytes) = 0;

  // Weights and gradients of one tensor, and where its elements lie in the optimizer's arrays.
  struct Segment {
    float* parameter = nullptr;
    const float* gradient = nullptr;
    uint64_t count = 0;
    uint64_t first = 0;
    bool decays = true;
  };
  // Segments that every step updates.
  struct Table {
    virtual ~Table() = default;
  };
  virtual std::unique_ptr<Table> make_table(std::span<const Segment> segments) = 0;
  virtual void update(const Table& table, const UpdateRule& rule, float* first, float* second) = 0;

  // After everything before it. Both directions, and within the device.
  virtual void copy(void* to, const void* from, uint64_t bytes) = 0;
  // A place in the queue, and waiting until the device has come there.
  virtual std::shared_ptr<void> mark() = 0;
  virtual void wait(const std::shared_ptr<void>& mark) = 0;
};

// A GPU that a replica lives on; without a runtime: the CPU.
struct Accelerator {
  std::shared_ptr<DeviceRuntime> runtime;
  std::shared_ptr<DeviceMath> math;
  Device device;
  bool is_cpu() const { return runtime == nullptr; }
};

// GPU `index` (of as many as there are, counted round). UsageError that says what is missing.
// `runtime`: one that is open already.
Accelerator open_accelerator(const std::vector<std::string>& part_folders, int index,
                             std::shared_ptr<DeviceRuntime> runtime = nullptr);

}  // namespace horon::train
