#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "horon/comm/bootstrap.h"
#include "horon/horon.h"

namespace horon::train {

// The same on ranks that are threads; what one throws fails the test.
inline void on_ranks(int size, const std::function<void(std::unique_ptr<Communicator>)>& body) {
  auto world = make_local_world(size);
  std::vector<std::jthread> threads;
  std::mutex mutex;
  std::string failed;
  for (auto& comm : world) {
    threads.emplace_back([&, one = std::move(comm)]() mutable {
      try {
        at::init_num_threads();
        torch::set_num_threads(1);
        body(std::move(one));
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        failed += error.what();
      }
    });
  }
  threads.clear();
  EXPECT_EQ(failed, "");
}

}  // namespace horon::train
