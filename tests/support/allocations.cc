#include "tests/support/allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local uint64_t count = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
}  // namespace

// Sanitizers have their own, and more kinds of them.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(size_t bytes) {
  ++count;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace horon::testing_support {
uint64_t allocations() { return count; }
}  // namespace horon::testing_support
