#pragma once

#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "horon/comm/communicator.h"

namespace horon::testing_support {

// Runs `body` once for each rank, each in a thread of its own; rethrows the first failure.
inline void run_ranks(const std::vector<std::unique_ptr<Communicator>>& world,
                      const std::function<void(Communicator&)>& body) {
  std::vector<std::future<void>> ranks;
  for (const auto& comm : world)
    ranks.push_back(std::async(std::launch::async, [&] { body(*comm); }));
  std::exception_ptr first;
  for (auto& rank : ranks) {
    try {
      rank.get();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace horon::testing_support
