/* The C interface from C: two ranks, every operation, errors, init again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "horon/c/horon.h"

#define CHECK(condition)                                                               \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, horon_last_error()); \
      exit(1);                                                                         \
    }                                                                                  \
  } while (0)

static void all_operations(int rank) {
  float data[6] = {1, 1, 1, 1, 1, 1};
  horon_handle handle = horon_all_reduce("x", data, 6, HORON_F32, NULL);
  CHECK(handle > 0);
  CHECK(horon_poll(handle) >= 0);
  CHECK(horon_wait(handle) == 0);
  CHECK(data[5] == 2.0F);
  CHECK(horon_poll(handle) == -2);

  horon_options options;
  horon_options_init(&options);
  options.op = HORON_AVERAGE;
  options.postscale = 10;
  double mean[2] = {rank, rank};
  CHECK(horon_wait(horon_all_reduce("mean", mean, 2, HORON_F64, &options)) == 0);
  CHECK(mean[0] == 5.0);

  int32_t root[3] = {rank, rank, rank};
  CHECK(horon_wait(horon_broadcast("root", root, 3, HORON_I32, 1, NULL)) == 0);
  CHECK(root[0] == 1);

  float segment[3];
  float in[6] = {0, 1, 2, 3, 4, 5};
  CHECK(horon_wait(horon_reduce_scatter("rs", in, 6, segment, 3, HORON_F32, NULL, NULL)) == 0);
  CHECK(segment[0] == 2.0F * (float)(3 * rank));

  handle = horon_all_gather("ag", in, (uint64_t)rank + 1, HORON_F32, NULL);
  CHECK(horon_wait(handle) == 0);
  uint64_t counts[2];
  float all[3];
  CHECK(horon_gathered(handle, counts, NULL) == 0);
  CHECK(counts[0] == 1 && counts[1] == 2);
  CHECK(horon_gathered(handle, NULL, all) == 0);
  CHECK(all[2] == 1.0F);

  const uint64_t one_each[2] = {1, 1};
  float out[2];
  CHECK(horon_wait(horon_all_to_all("aa", in, one_each, out, one_each, HORON_F32, NULL)) == 0);
  CHECK(out[0] == (float)rank && out[1] == (float)rank);

  void* parts[2] = {data, mean};
  const uint64_t part_counts[2] = {6, 2};
  const int dtypes[2] = {HORON_F32, HORON_F64};
  CHECK(horon_wait(horon_grouped_all_reduce("group", parts, part_counts, dtypes, 2, NULL)) == 0);
  CHECK(data[0] == 4.0F && mean[1] == 10.0);
  CHECK(horon_wait(horon_barrier(NULL, NULL)) == 0);
}

/* Scaled on the way; what is const in horon.h stays as it is. Twice: the second time by plan. */
static void scaled(int rank) {
  horon_options options;
  horon_options_init(&options);
  options.prescale = 3;
  options.postscale = 2;
  for (int step = 0; step < 3; ++step) {
    const float in[6] = {0, 1, 2, 3, 4, 5};
    float segment[3];
    CHECK(horon_wait(horon_reduce_scatter("scaled rs", in, 6, segment, 3, HORON_F32, NULL,
                                          &options)) == 0);
    CHECK(segment[1] == 12.0F * (float)(3 * rank + 1));

    float all[12];
    const horon_handle handle = horon_all_gather("scaled ag", in, 6, HORON_F32, &options);
    CHECK(horon_wait(handle) == 0 && horon_gathered(handle, NULL, all) == 0);
    CHECK(all[5] == 30.0F && all[11] == 30.0F);

    const uint64_t three_each[2] = {3, 3};
    float out[6];
    CHECK(horon_wait(horon_all_to_all("scaled aa", in, three_each, out, three_each, HORON_F32,
                                      &options)) == 0);
    CHECK(out[5] == 6.0F * (float)(3 * rank + 2));
    for (int i = 0; i < 6; ++i) CHECK(in[i] == (float)i);

    float root[2] = {1, 1};
    CHECK(horon_wait(horon_broadcast("scaled bc", root, 2, HORON_F32, 0, &options)) == 0);
    CHECK(root[1] == 6.0F);
  }
}

static void errors_and_sets(int rank) {
  float data[4] = {1, 1, 1, 1};
  CHECK(horon_all_reduce("x", NULL, 4, HORON_F32, NULL) == -2);
  CHECK(strstr(horon_last_error(), "null") != NULL);
  CHECK(horon_all_reduce("x", data, 4, 99, NULL) == -2);
  CHECK(horon_wait(12345) == 2);
  CHECK(horon_wait(horon_all_reduce("bad", data, rank == 0 ? 4 : 3, HORON_F32, NULL)) == 11);
  CHECK(strstr(horon_last_error(), "different operations") != NULL);

  const int ranks[1] = {1};
  const int set = horon_add_process_set(ranks, 1);
  CHECK(set > 0);
  horon_options options;
  horon_options_init(&options);
  options.set = set;
  const horon_handle handle = horon_all_reduce("mine", data, 4, HORON_F32, &options);
  CHECK(rank == 1 ? horon_wait(handle) == 0 : handle == -2);
  CHECK(horon_remove_process_set(set) == 0);
  CHECK(horon_remove_process_set(set) == 2);
  int last = -1;
  CHECK(horon_join(0, &last) == 0);
  CHECK(last == 0 || last == 1);
}

int main(void) {
  CHECK(horon_rank() == -1 && horon_is_initialized() == 0);
  CHECK(horon_all_reduce("x", NULL, 0, HORON_F32, NULL) == -2);
  for (int again = 0; again < 2; ++again) {
    CHECK(horon_init() == 0);
    CHECK(horon_init() == 2);
    CHECK(horon_size() == 2 && horon_local_size() == 2 && horon_cross_size() == 1);
    all_operations(horon_rank());
    scaled(horon_rank());
    errors_and_sets(horon_rank());
    CHECK(horon_shutdown() == 0);
  }
  printf("horon %s from C\n", horon_version());
  return 0;
}
