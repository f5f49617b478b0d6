/* Gradients of two layers, averaged over the ranks of a job, in C:
 *   horon run -np 4 example_c          mpirun -np 4 example_c */
#include <stdio.h>
#include <string.h>

#include "horon/c/horon.h"

static int fail(const char* what, int code) {
  fprintf(stderr, "c: %s: %s\n", what, horon_last_error());
  return code;
}

int main(int argc, char** argv) {
  if (argc > 1) {
    const int asked = strcmp(argv[1], "--help") == 0;
    fputs("usage: c, alone or under `horon run -np N`\n", asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  int code = horon_init();
  if (code != 0) return fail("start", code);
  const int rank = horon_rank(NULL);

  /* Declares the tensors of every step once; the library returns memory that it reduces without a copy. */
  const horon_tensor tensors[2] = {
      {.size = sizeof(horon_tensor), .version = HORON_VERSION, .name = "fc", .count = 1000, .dtype = HORON_F32},
      {.size = sizeof(horon_tensor), .version = HORON_VERSION, .name = "conv", .count = 500, .dtype = HORON_F32}};
  const horon_options average = {.size = sizeof average, .version = HORON_VERSION, .op = HORON_AVERAGE};
  void* views[2];
  code = horon_declare(NULL, tensors, 2, &average, views);
  if (code != 0) return fail("declare", code);

  for (int step = 0; step < 3; ++step) {
    horon_handle handles[2];
    for (int i = 0; i < 2; ++i) { /* in any order */
      float* gradient = views[i];
      for (uint64_t k = 0; k < tensors[i].count; ++k) gradient[k] = (float)(rank + step);
      const horon_buffer buffer = {.size = sizeof buffer, .version = HORON_VERSION, .data = gradient,
                                   .count = tensors[i].count, .dtype = HORON_F32};
      handles[i] = horon_all_reduce(NULL, tensors[i].name, NULL, &buffer, &average);
    }
    code = horon_wait_all(NULL, handles, 2); /* also for failed submissions */
    if (code != 0) return fail("all-reduce", code);
    if (rank == 0) printf("step %d: the average is %g\n", step, ((float*)views[0])[0]);
  }
  code = horon_shutdown();
  return code == 0 ? 0 : fail("end", code);
}
