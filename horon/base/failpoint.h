#pragma once

#include <string>

// Faults injected at named places, for tests: HORON_FAILPOINT names one.
namespace horon {

const std::string& wanted_fault();  // empty: none
// With HORON_FAILPOINT=NAME or NAME:N the process kills itself (SIGKILL) when it reaches NAME for
// the first (N-th) time.
void failpoint(const char* name);

}  // namespace horon
