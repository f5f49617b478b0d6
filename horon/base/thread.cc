#include "horon/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace horon {

std::jthread start_thread(const std::string& name, std::function<void(std::stop_token)> body) {
  return std::jthread([name, body = std::move(body)](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    body(stop);
  });
}

OwnProcess::OwnProcess() : process_(getpid()) {}
bool OwnProcess::is_here() const { return getpid() == process_; }

void parallel_for(uint64_t count, uint64_t grain, int threads,
                  const std::function<void(uint64_t first, uint64_t last)>& body) {
  const uint64_t most = count / std::max<uint64_t>(grain, 1);
  const auto parts = std::clamp<uint64_t>(static_cast<uint64_t>(std::max(threads, 1)), 1,
                                          std::max<uint64_t>(most, 1));
  const uint64_t share = (count / parts + 63) / 64 * 64 + (parts == 1 ? count : 0);
  std::vector<std::jthread> helpers;
  for (uint64_t first = share; first < count; first += share)
    helpers.emplace_back([&, first] { body(first, std::min(first + share, count)); });
  body(0, std::min(share, count));
}

std::vector<int> usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &mask)) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

bool pin_to_core(int core) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(core, &mask);
  return sched_setaffinity(0, sizeof(mask), &mask) == 0;
}

}  // namespace horon
