/* For the tests in C: buffers in one line, checks that say where. */
#ifndef HORON_TESTS_SHORTHAND_H
#define HORON_TESTS_SHORTHAND_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, horon_last_error()); \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

static inline horon_buffer buffer_of(const void* data, uint64_t count, int dtype) {
  horon_buffer buffer = {sizeof buffer, HORON_VERSION, (void*)data, count, dtype, 0, 0, 0, 0, 0, 0};
  return buffer;
}
#define BUFFER(data, count, dtype) (&(horon_buffer[]){buffer_of(data, count, dtype)}[0])
#define ALL_REDUCE(name, data, count, dtype, options) \
  horon_all_reduce(NULL, name, NULL, BUFFER(data, count, dtype), options)

#endif
