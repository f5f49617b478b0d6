// Batches that are copied to a GPU ahead of their use have the bytes of those that stay on the
// host.
#include <cstring>
#include <iostream>

#include "horon/base/error.h"
#include "horon/base/part.h"
#include "horon/data/open_dataset.h"
#include "horon/data/pipeline.h"

int main() {
  using namespace horon;
  try {
    const std::shared_ptr<DeviceRuntime> device = open_cuda_runtime(part_folders(""));
    DatasetRequest request;
    request.name = "shapes10";
    request.samples = 5000;
    PipelineOptions options;
    options.dataset = open_dataset(request);
    options.recipe = find_recipe("cifar", true, 32, 32);
    options.batch = 130;
    options.epochs = 2;
    options.threads = 4;
    Pipeline host(options);
    options.device = device;
    Pipeline there(options);
    uint64_t batches = 0;
    while (const auto one = host.next()) {
      const auto other = there.next();
      if (!other || other->samples != one->samples || other->pixels.device.is_cpu())
        throw Error("another batch");
      const OwnedBuffer back = OwnedBuffer::host(other->pixels.count, other->pixels.dtype);
      const auto stream = device->make_stream(0);
      stream->copy(back.view().data, other->pixels.data, other->pixels.bytes());
      stream->synchronize();
      if (std::memcmp(back.view().data, one->pixels.data, one->pixels.bytes()) != 0)
        throw Error("other bytes");
      ++batches;
    }
    std::cout << "pipeline: " << batches << " batches on the device, ok\n";
    return batches == 78 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
