#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace horon {

// Starts a thread with a name (shown by ps and gdb, 15 characters) and a stop token; the owner's
// destructor joins it. The body must not throw.
std::jthread start_thread(const std::string& name, std::function<void(std::stop_token)> body);

// Remembers the process that created it, so that destructors in a forked child do nothing for the
// parent.
class OwnProcess {
 public:
  OwnProcess();
  bool is_here() const;

 private:
  int process_;
};

// Calls body(first, last) on ranges of [0, count), each at least `grain` long, on up to `threads`
// threads including this one; returns when all are done. Ranges begin at multiples of 64. The body
// must not throw.
void parallel_for(uint64_t count, uint64_t grain, int threads,
                  const std::function<void(uint64_t first, uint64_t last)>& body);

// Cores in this process's affinity mask, at least one.
std::vector<int> usable_cores();

// Binds the calling thread, and threads that it starts later, to one core. False if refused.
bool pin_to_core(int core);

}  // namespace horon
