#include "horon/runtime/device_stage.h"

#include <algorithm>

#include "horon/base/error.h"

namespace horon {

void DeviceStage::prepare(int device) {
  if (device == device_) return;
  DeviceRuntime* runtime = comm_.device();
  require(runtime != nullptr, "a device buffer needs the CUDA part; see `horon info`");
  for (Slot& slot : slots_) {
    if (slot.memory.view().count == 0) {
      slot.memory = comm_.allocate(kPieceBytes, DType::kU8);
      slot.pinned = runtime->pin(slot.memory.view());
    }
    slot.stream = runtime->make_stream(device);
  }
  device_ = device;
}

bool DeviceStage::move(const BufferView& data, bool is_ready,
                       const std::function<bool(const BufferView& piece)>& run) {
  prepare(data.device.index);
  const uint64_t piece_elements = kPieceBytes / size_of(data.dtype);
  const uint64_t pieces = (data.count + piece_elements - 1) / piece_elements;
  const auto on_device = [&](uint64_t i) {
    return data.slice(i * piece_elements,
                      std::min(piece_elements, data.count - i * piece_elements));
  };
  const auto on_host = [&](uint64_t i) {
    return BufferView{
        slots_[i % slots_.size()].memory.view().data, on_device(i).count, data.dtype, {}};
  };
  const auto fetch = [&](uint64_t i) {  // behind what goes back from this slot, on the same stream
    Stream& stream = *slots_[i % slots_.size()].stream;
    if (!is_ready) stream.follow_caller();
    stream.copy(on_host(i).data, on_device(i).data, on_device(i).bytes());
  };
  const auto settle = [&] {
    for (Slot& slot : slots_) slot.stream->synchronize();
  };
  bool goes_on = true;
  try {
    fetch(0);
    for (uint64_t i = 0; i < pieces && goes_on; ++i) {
      Stream& stream = *slots_[i % slots_.size()].stream;
      if (i + 1 < pieces) fetch(i + 1);
      stream.synchronize();
      goes_on = run(on_host(i));
      if (goes_on) stream.copy(on_device(i).data, on_host(i).data, on_device(i).bytes());
    }
  } catch (...) {
    settle();  // no copy may still be queued when the caller frees its memory
    throw;
  }
  settle();
  return goes_on;
}

}  // namespace horon
