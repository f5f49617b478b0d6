#include "horon/data/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace horon {

void for_blocks(const Range& range, uint64_t block, int threads,
                const std::function<BlockBody()>& make_body) {
  std::atomic<uint64_t> next{range.first};
  std::mutex mutex;  // guards the one below
  std::exception_ptr failed;
  const auto work = [&] {
    try {
      const BlockBody body = make_body();
      for (uint64_t first = next.fetch_add(block); first < range.last;
           first = next.fetch_add(block))
        body({first, std::min(first + block, range.last)});
    } catch (...) {
      next = range.last;  // the other threads find nothing left
      const std::lock_guard lock(mutex);
      if (!failed) failed = std::current_exception();
    }
  };
  {
    const uint64_t blocks = (range.size() + block - 1) / block;
    const auto helpers = std::min<uint64_t>(static_cast<uint64_t>(std::max(threads, 1)), blocks);
    std::vector<std::jthread> running;
    for (uint64_t i = 1; i < helpers; ++i) running.emplace_back(work);
    work();
  }
  if (failed) std::rethrow_exception(failed);
}

}  // namespace horon
