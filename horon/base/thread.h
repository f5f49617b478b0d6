#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace horon {

// A thread with a name (shown by ps and gdb, 15 characters) and a stop token; joined by its owner's
// destructor. The body must not throw.
std::jthread start_thread(const std::string& name, std::function<void(std::stop_token)> body);

// Remembers the process that made it: in a forked child destructors must not act for the parent.
class OwnProcess {
 public:
  OwnProcess();
  bool is_here() const;

 private:
  int process_;
};

// body(first, last) over the ranges of [0, count), each at least `grain` long, by up to `threads`
// threads, this one among them. Ranges begin at multiples of 64. The body must not throw.
void parallel_for(uint64_t count, uint64_t grain, int threads,
                  const std::function<void(uint64_t first, uint64_t last)>& body);

// Cores that this process may run on (its affinity mask), at least 1.
std::vector<int> usable_cores();

// Binds the calling thread, and the threads it will start, to one core. False if refused.
bool pin_to_core(int core);

}  // namespace horon
