#include "horon/base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace horon {

const std::string& wanted_fault() {
  static const std::string kText =
      std::getenv("HORON_FAILPOINT") != nullptr ? std::getenv("HORON_FAILPOINT") : "";
  return kText;
}

void failpoint(const char* name) {
  if (wanted_fault().empty()) return;
  static std::atomic<int> passed = 0;  // two threads write checkpoints
  const size_t colon = wanted_fault().find(':');
  if (wanted_fault().substr(0, colon) != name) return;
  const int at = colon == std::string::npos ? 1 : std::atoi(wanted_fault().c_str() + colon + 1);
  if (++passed == at) kill(getpid(), SIGKILL);
}

}  // namespace horon
