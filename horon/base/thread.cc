#include "horon/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

namespace horon {

std::jthread start_thread(const std::string& name, std::function<void(std::stop_token)> body) {
  return std::jthread([name, body = std::move(body)](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    body(stop);
  });
}

OwnProcess::OwnProcess() : process_(getpid()) {}
bool OwnProcess::is_here() const { return getpid() == process_; }

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
