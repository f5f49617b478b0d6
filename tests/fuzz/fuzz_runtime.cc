// What ranks tell each other when a step is not as planned.
#include <cstddef>
#include <cstdint>

#include "horon/base/error.h"
#include "horon/runtime/agreement.h"
#include "horon/runtime/stall.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    const horon::PendingReport report = horon::unpack_report(bytes);
    horon::Plan plan({100, 1000});
    const horon::PendingReport reports[] = {report, report};
    const int ranks[] = {0, 1};
    const horon::Decision decision = horon::decide(reports, ranks, plan);
    plan.learn(decision.run, {});
  } catch (const horon::Error&) {
  }
  try {
    horon::unpack_state(bytes);
  } catch (const horon::Error&) {
  }
  return 0;
}
