#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "horon/comm/bootstrap.h"
#include "horon/runtime/runtime.h"

namespace horon {

// For tests: runs body(runtime) on `size` ranks that are threads of this process. Rethrows the
// first rank's exception.
template <typename Body>
void on_ranks(int size, const Body& body, const RuntimeOptions& options = {},
              const std::shared_ptr<DeviceRuntime>& device = nullptr) {
  auto world = make_local_world(size, {}, device);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::unique_ptr<Runtime>> runtimes(static_cast<size_t>(size));
  {
    std::barrier end(size);
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        try {
          runtimes[rank] = std::make_unique<Runtime>(std::move(world[rank]), options);
          body(*runtimes[rank]);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
        end.arrive_and_wait();  // no rank leaves while others work
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// `count` tensors of different sizes whose values depend on tensor, rank and step.
struct Tensors {
  std::vector<std::vector<float>> data;
  Tensors(int count, int rank, int step = 0) {
    for (int i = 0; i < count; ++i)
      data.emplace_back(static_cast<size_t>(1 + 37 * i % 300), value(i, rank, step));
  }
  static float value(int tensor, int rank, int step) {
    return static_cast<float>(tensor + 10 * rank + step);
  }
  static float sum(int tensor, int size, int step) {
    float total = 0;
    for (int rank = 0; rank < size; ++rank) total += value(tensor, rank, step);
    return total;
  }
};

inline void expect_all(const std::vector<float>& data, float want) {
  for (const float value : data) ASSERT_EQ(value, want);
}

}  // namespace horon
