#pragma once

#include <string>

// Faults at chosen places, for tests: HORON_FAILPOINT names one.
namespace horon {

const std::string& wanted_fault();  // empty: none
// "NAME" or "NAME:N": the process ends (SIGKILL) when it comes to NAME for the N-th time.
void failpoint(const char* name);

}  // namespace horon
