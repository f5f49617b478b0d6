/* The C interface from C: two ranks, every operation, results of unknown size, groups, handles, errors, sets, declared
 * tensors, sessions beside each other, init again. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "horon/c/horon.h"
#include "tests/c_api/shorthand.h"

static horon_options options_of(int op) {
  horon_options options = {sizeof options, HORON_VERSION, op, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0};
  return options;
}

static horon_made made_of(horon_handle handle, int item) {
  horon_made made = {sizeof made, HORON_VERSION, NULL, 0, 0, 0, NULL};
  CHECK(horon_result(NULL, handle, item, &made) == 0);
  return made;
}

static void all_operations(int rank) {
  float data[6] = {1, 1, 1, 1, 1, 1};
  horon_handle handle = ALL_REDUCE("x", data, 6, HORON_F32, NULL);
  CHECK(handle > 0);
  CHECK(horon_poll(NULL, handle) >= 0);
  CHECK(horon_wait(NULL, handle) == 0);
  CHECK(data[5] == 2.0F);
  CHECK(horon_poll(NULL, handle) == -2);

  horon_options options = options_of(HORON_AVERAGE);
  options.postscale = 10;
  double mean[2] = {rank, rank};
  CHECK(horon_wait(NULL, ALL_REDUCE("mean", mean, 2, HORON_F64, &options)) == 0);
  CHECK(mean[0] == 5.0);

  int32_t root[3] = {rank, rank, rank};
  CHECK(horon_wait(NULL, horon_broadcast(NULL, "root", NULL, BUFFER(root, 3, HORON_I32), 1, NULL)) == 0);
  CHECK(root[0] == 1);

  float segment[3];
  const float in[6] = {0, 1, 2, 3, 4, 5};
  CHECK(horon_wait(NULL, horon_reduce_scatter(NULL, "rs", BUFFER(in, 6, HORON_F32), BUFFER(segment, 3, HORON_F32), NULL,
                                              NULL)) == 0);
  CHECK(segment[0] == 2.0F * (float)(3 * rank));

  const uint64_t one_each[2] = {1, 1};
  float out[2];
  CHECK(horon_wait(NULL, horon_all_to_all(NULL, "aa", BUFFER(in, 2, HORON_F32), one_each, BUFFER(out, 2, HORON_F32),
                                          one_each, NULL)) == 0);
  CHECK(out[0] == (float)rank && out[1] == (float)rank);
  CHECK(horon_wait(NULL, horon_barrier(NULL, NULL, NULL)) == 0);
}

/* From one place to another, with a name and without, first and by plan; the input stays. */
static void apart(int rank) {
  for (int step = 0; step < 4; ++step) {
    const float in[3] = {1, 2, (float)rank};
    const float more[2] = {5, 6};
    float out[3] = {0};
    float other[2] = {0};
    const horon_handle handles[3] = {
        horon_all_reduce(NULL, "apart", BUFFER(in, 3, HORON_F32), BUFFER(out, 3, HORON_F32), NULL),
        horon_all_reduce(NULL, "apart too", BUFFER(more, 2, HORON_F32), BUFFER(other, 2, HORON_F32), NULL)};
    CHECK(horon_wait_all(NULL, handles, 2) == 0);
    CHECK(out[1] == 4.0F && out[2] == 1.0F && in[1] == 2.0F && other[1] == 12.0F && more[1] == 6.0F);
    CHECK(horon_wait(NULL, horon_broadcast(NULL, "", BUFFER(in, 3, HORON_F32), BUFFER(out, 3, HORON_F32), 1, NULL)) == 0);
    CHECK(out[2] == 1.0F && in[2] == (float)rank);
  }
}

/* Sizes that nobody knows beforehand. */
static void made_by_the_operation(int rank) {
  const float in[6] = {0, 1, 2, 3, 4, 5};
  horon_handle handle = horon_all_gather(NULL, "ag", BUFFER(in, (uint64_t)rank + 1, HORON_F32), NULL, NULL);
  CHECK(horon_wait(NULL, handle) == 0);
  horon_made made = made_of(handle, 0);
  CHECK(made.count == 3 && made.ranks == 2 && made.counts[0] == 1 && made.counts[1] == 2 && made.dtype == HORON_F32);
  CHECK(((float*)made.data)[2] == 1.0F);
  CHECK(horon_release(NULL, handle) == 0 && horon_release(NULL, handle) == 2);

  const uint64_t sends[2] = {rank == 0 ? 4 : 1, rank == 0 ? 0 : 5};
  handle = horon_all_to_all(NULL, "aa?", BUFFER(in, rank == 0 ? 4 : 6, HORON_F32), sends, NULL, NULL, NULL);
  CHECK(horon_wait(NULL, handle) == 0);
  made = made_of(handle, 0);
  CHECK(rank == 0 ? made.count == 5 && made.counts[0] == 4 && made.counts[1] == 1
                  : made.count == 5 && made.counts[0] == 0 && made.counts[1] == 5);
  CHECK(((float*)made.data)[4] == (rank == 0 ? 0.0F : 5.0F));
  CHECK(horon_release(NULL, handle) == 0);

  handle = horon_reduce_scatter(NULL, "", BUFFER(in, 5, HORON_F32), NULL, NULL, NULL); /* 3 and 2 */
  CHECK(horon_wait(NULL, handle) == 0);
  made = made_of(handle, 0);
  CHECK(made.count == (rank == 0 ? 3 : 2) && ((float*)made.data)[0] == (rank == 0 ? 0.0F : 6.0F));
  CHECK(horon_release(NULL, handle) == 0);
}

static void groups(int rank) {
  for (int step = 0; step < 3; ++step) {
    float sum[6] = {1, 1, 1, 1, 1, 1};
    int64_t whole[2] = {3, 5};
    const float in[2] = {1, (float)rank};
    float out[2];
    horon_item items[4] = {
        {sizeof items[0], HORON_VERSION, HORON_ALL_REDUCE, 0, NULL, BUFFER(sum, 6, HORON_F32), NULL},
        {sizeof items[0], HORON_VERSION, HORON_ALL_REDUCE, 0, NULL, BUFFER(whole, 2, HORON_I64), NULL},
        {sizeof items[0], HORON_VERSION, HORON_BROADCAST, 1, BUFFER(in, 2, HORON_F32), BUFFER(out, 2, HORON_F32), NULL},
        {sizeof items[0], HORON_VERSION, HORON_ALL_GATHER, 0, BUFFER(in, (uint64_t)rank + 1, HORON_F32), NULL, NULL}};
    horon_options options = options_of(HORON_SUM);
    options.prescale = 3;
    options.postscale = 0.5;
    const horon_handle handle = horon_group(NULL, "group", items, 4, &options);
    CHECK(handle > 0 && horon_wait(NULL, handle) == 0);
    CHECK(sum[5] == 3.0F && whole[0] == 9 && whole[1] == 15 && out[1] == 1.5F && in[1] == (float)rank);
    const horon_made made = made_of(handle, 3);
    CHECK(made.count == 3 && ((float*)made.data)[2] == 1.5F);
    CHECK(horon_release(NULL, handle) == 0);
  }
}

/* Scaled on the way; what is const stays as it is. Three times: then by plan. */
static void scaled(int rank) {
  horon_options options = options_of(HORON_SUM);
  options.prescale = 3;
  options.postscale = 2;
  for (int step = 0; step < 3; ++step) {
    const float in[6] = {0, 1, 2, 3, 4, 5};
    float segment[3];
    CHECK(horon_wait(NULL, horon_reduce_scatter(NULL, "scaled rs", BUFFER(in, 6, HORON_F32), BUFFER(segment, 3, HORON_F32),
                                                NULL, &options)) == 0);
    CHECK(segment[1] == 12.0F * (float)(3 * rank + 1));
    float all[12];
    CHECK(horon_wait(NULL, horon_all_gather(NULL, "scaled ag", BUFFER(in, 6, HORON_F32), BUFFER(all, 12, HORON_F32),
                                            &options)) == 0);
    CHECK(all[5] == 30.0F && all[11] == 30.0F);
    const uint64_t three_each[2] = {3, 3};
    float out[6];
    CHECK(horon_wait(NULL, horon_all_to_all(NULL, "scaled aa", BUFFER(in, 6, HORON_F32), three_each,
                                            BUFFER(out, 6, HORON_F32), three_each, &options)) == 0);
    CHECK(out[5] == 6.0F * (float)(3 * rank + 2));
    for (int i = 0; i < 6; ++i) CHECK(in[i] == (float)i);
    int32_t whole[2] = {7, -7};
    options.postscale = 0.1; /* 7 * 3 twice is 42: 4 */
    CHECK(horon_wait(NULL, ALL_REDUCE("scaled i32", whole, 2, HORON_I32, &options)) == 0);
    CHECK(whole[0] == 4 && whole[1] == -4);
    options.postscale = 2;
  }
}

static void count_done(void* user, int code, const char* text) {
  if (code == 0 && *text == '\0') __atomic_add_fetch((int*)user, 1, __ATOMIC_SEQ_CST);
  if (code != 0 && *text != '\0') __atomic_add_fetch((int*)user, 100, __ATOMIC_SEQ_CST);
}

/* Nobody waits: they end by themselves, also one that a plan has in a bucket with others. */
static void handles(int rank) {
  float data[4] = {1, 1, 1, 1};
  float other[4] = {1, 1, 1, 1};
  for (int step = 0; step < 4; ++step) { /* until both are in one bucket */
    const horon_handle both[2] = {ALL_REDUCE("h1", data, 4, HORON_F32, NULL), ALL_REDUCE("h2", other, 4, HORON_F32, NULL)};
    CHECK(horon_wait_all(NULL, both, 2) == 0);
  }
  int done = 0;
  horon_handle handle = ALL_REDUCE("h1", data, 4, HORON_F32, NULL);
  CHECK(horon_on_done(NULL, handle, count_done, &done) == 0);
  while (__atomic_load_n(&done, __ATOMIC_SEQ_CST) == 0) usleep(100);
  CHECK(horon_wait(NULL, handle) == 0);
  handle = ALL_REDUCE("h2", other, 4, HORON_F32, NULL);
  while (horon_poll(NULL, handle) == 0) usleep(100);
  CHECK(horon_on_done(NULL, handle, count_done, &done) == 0 && done == 2); /* over: at once */
  CHECK(horon_wait(NULL, handle) == 0);

  handle = ALL_REDUCE("bad", data, rank == 0 ? 4 : 3, HORON_F32, NULL);
  CHECK(horon_on_done(NULL, handle, count_done, &done) == 0);
  CHECK(horon_wait(NULL, handle) == 11);
  while (__atomic_load_n(&done, __ATOMIC_SEQ_CST) != 102) usleep(100);

  if (rank == 0) { /* the other comes later */
    handle = ALL_REDUCE("late", data, 4, HORON_F32, NULL);
    CHECK(horon_wait_for(NULL, handle, 20) == -1);
    CHECK(horon_wait(NULL, horon_barrier(NULL, "", NULL)) == 0);
    CHECK(horon_wait_for(NULL, handle, 20000) == 0);
  } else {
    CHECK(horon_wait(NULL, horon_barrier(NULL, "", NULL)) == 0);
    CHECK(horon_wait(NULL, ALL_REDUCE("late", data, 4, HORON_F32, NULL)) == 0);
  }
  handle = ALL_REDUCE("released", data, 4, HORON_F32, NULL);
  CHECK(horon_release(NULL, handle) == 0 && horon_wait(NULL, handle) == 2);
  CHECK(horon_wait(NULL, horon_barrier(NULL, "released, too", NULL)) == 0);

  const int descriptor = horon_descriptor(NULL);
  CHECK(descriptor >= 0 && horon_next_done(NULL) == 0);
  const horon_handle two[2] = {ALL_REDUCE("d1", data, 4, HORON_F32, NULL), ALL_REDUCE("d2", other, 4, HORON_F32, NULL)};
  for (int seen = 0; seen < 2;) {
    struct pollfd watched = {descriptor, POLLIN, 0};
    CHECK(poll(&watched, 1, 20000) == 1);
    for (horon_handle next = horon_next_done(NULL); next != 0; next = horon_next_done(NULL), ++seen)
      CHECK((next == two[0] || next == two[1]) && horon_poll(NULL, next) == 1);
  }
  struct pollfd quiet = {descriptor, POLLIN, 0};
  CHECK(poll(&quiet, 1, 0) == 0);
  CHECK(horon_wait_all(NULL, two, 2) == 0);
  CHECK(horon_wait(NULL, ALL_REDUCE("d1", data, 4, HORON_F32, NULL)) == 0); /* waited for: no news */
  CHECK(horon_next_done(NULL) == 0 && poll(&quiet, 1, 0) == 0);
  CHECK(horon_wait_all(NULL, NULL, 1) == 2);
}

struct share {
  int number;
  int wrong;
};

static void* submit_and_wait(void* at) {
  struct share* mine = at;
  for (int step = 0; step < 100; ++step) {
    char name[20];
    snprintf(name, sizeof name, "t%d.%d", mine->number, step % 10);
    double data[3] = {1, 2, step};
    if (horon_wait(NULL, ALL_REDUCE(name, data, 3, HORON_F64, NULL)) != 0 || data[2] != 2 * step) ++mine->wrong;
    if (horon_wait(NULL, 999999) != 2 || strstr(horon_last_error(), "999999") == NULL) ++mine->wrong; /* each its own */
  }
  return NULL;
}

static void threads(void) {
  pthread_t all[4];
  struct share shares[4] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
  for (int i = 0; i < 4; ++i) CHECK(pthread_create(&all[i], NULL, submit_and_wait, &shares[i]) == 0);
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(all[i], NULL) == 0 && shares[i].wrong == 0);
}

static void declared(void) {
  horon_tensor tensors[2] = {{sizeof tensors[0], HORON_VERSION, "w", 1000, HORON_F32, 0, 0, 0},
                             {sizeof tensors[0], HORON_VERSION, "b", 10, HORON_F32, 0, 0, 0}};
  horon_options options = options_of(HORON_AVERAGE);
  void* views[2];
  CHECK(horon_declare(NULL, tensors, 2, &options, views) == 0);
  horon_counters before = {sizeof before, HORON_VERSION, 0, 0, 0, 0, 0};
  horon_counters after = before;
  CHECK(horon_read_counters(NULL, &before) == 0);
  for (int step = 0; step < 3; ++step) {
    ((float*)views[0])[999] = 4;
    ((float*)views[1])[0] = 8;
    const horon_handle both[2] = {ALL_REDUCE("w", views[0], 1000, HORON_F32, &options),
                                  ALL_REDUCE("b", views[1], 10, HORON_F32, &options)};
    CHECK(horon_wait_all(NULL, both, 2) == 0);
    CHECK(((float*)views[0])[999] == 4 && ((float*)views[1])[0] == 8);
  }
  CHECK(horon_read_counters(NULL, &after) == 0);
  CHECK(after.operations == before.operations + 6 && after.collectives == before.collectives + 3);
  CHECK(after.bytes_copied == before.bytes_copied && after.control_messages == before.control_messages);
  void* memory = NULL;
  CHECK(horon_allocate(NULL, 100, HORON_F64, &memory) == 0);
  ((double*)memory)[99] = 1;
  CHECK(horon_wait(NULL, ALL_REDUCE("shared", memory, 100, HORON_F64, NULL)) == 0 && ((double*)memory)[99] == 2);
  CHECK(horon_free(NULL, memory) == 0 && horon_free(NULL, memory) == 2);
}

static void errors_and_sets(int rank) {
  float data[4] = {1, 1, 1, 1};
  CHECK(ALL_REDUCE("x", NULL, 4, HORON_F32, NULL) == -2);
  CHECK(strstr(horon_last_error(), "null") != NULL && horon_last_error_kind() == HORON_USAGE_ERROR);
  CHECK(ALL_REDUCE("x", data, 4, 99, NULL) == -2);
  CHECK(horon_all_reduce(NULL, "x", NULL, NULL, NULL) == -2 && horon_all_gather(NULL, "x", NULL, NULL, NULL) == -2);
  const uint64_t sends[2] = {1, rank == 0 ? 1 : 9};
  const horon_handle wrong = horon_all_to_all(NULL, "wrong", BUFFER(data, 2, HORON_F32), sends, NULL, NULL, NULL);
  CHECK(wrong > 0);
  while (horon_poll(NULL, wrong) == 0) usleep(100);
  horon_made made = {sizeof made, HORON_VERSION, NULL, 0, 0, 0, NULL};
  CHECK(horon_result(NULL, wrong, 0, &made) == 11 && horon_wait(NULL, wrong) == 11);
  horon_buffer unset = {0};
  CHECK(horon_all_reduce(NULL, "x", NULL, &unset, NULL) == -2);
  CHECK(strstr(horon_last_error(), "size or version") != NULL);
  horon_buffer on_gpu = buffer_of(data, 4, HORON_F32);
  on_gpu.device = HORON_CUDA;
  CHECK(horon_all_reduce(NULL, "x", NULL, &on_gpu, NULL) == -2);
  CHECK(strstr(horon_last_error(), "takes devices") != NULL);
  CHECK(horon_wait(NULL, 12345) == 2);
  CHECK(horon_wait(NULL, ALL_REDUCE("bad", data, rank == 0 ? 4 : 3, HORON_F32, NULL)) == 11);
  CHECK(strstr(horon_last_error(), "different operations") != NULL);
  horon_options options = options_of(HORON_SUM);
  for (int named = 0; named < 2; ++named) { /* the same numbers of another shape */
    options.tag = (uint64_t)rank + 1;
    CHECK(horon_wait(NULL, ALL_REDUCE(named ? "shape" : "", data, 4, HORON_F32, &options)) == 11);
    CHECK(strstr(horon_last_error(), "tagged") != NULL);
    options.tag = 7;
    CHECK(horon_wait(NULL, ALL_REDUCE(named ? "shape" : "", data, 4, HORON_F32, &options)) == 0);
  }
  options.tag = 0;

  const int ranks[1] = {1};
  const int set = horon_add_process_set(NULL, ranks, 1);
  CHECK(set > 0);
  int listed[4] = {-1, -1, -1, -1};
  CHECK(horon_process_sets(NULL, listed, 4) == 2 && listed[0] == 0 && listed[1] == set);
  CHECK(horon_process_set_ranks(NULL, set, listed, 4) == 1 && listed[0] == 1);
  CHECK(horon_process_set_ranks(NULL, 0, NULL, 0) == 2 && horon_process_set_ranks(NULL, 99, NULL, 0) == -2);
  CHECK(horon_process_set_rank(NULL, set) == (rank == 1 ? 0 : -1) && horon_process_set_rank(NULL, 0) == rank);
  options.set = set;
  const horon_handle handle = ALL_REDUCE("mine", data, 4, HORON_F32, &options);
  CHECK(rank == 1 ? horon_wait(NULL, handle) == 0 : handle == -2);
  CHECK(horon_remove_process_set(NULL, set) == 0);
  CHECK(horon_remove_process_set(NULL, set) == 2);

  /* An average over those that are there, and over all. */
  float mean[2] = {6, 6};
  options = options_of(HORON_AVERAGE);
  int last = -1;
  if (rank == 0) {
    CHECK(horon_wait(NULL, ALL_REDUCE("there", mean, 1, HORON_F32, &options)) == 0 && mean[0] == 6);
    options.over_members = 1;
    CHECK(horon_wait(NULL, ALL_REDUCE("all", mean + 1, 1, HORON_F32, &options)) == 0 && mean[1] == 3);
  }
  CHECK(horon_join(NULL, 0, &last) == 0);
  CHECK(last == 0 || last == 1);
}

static void questions(int rank) {
  CHECK(horon_generation(NULL) == 0);
  CHECK(strcmp(horon_backend(NULL), "shm") == 0);
  CHECK(strcmp(horon_setting(NULL, "log_level"), "error") == 0);
  CHECK(strcmp(horon_setting(NULL, "Log-Level"), "error") == 0);
  CHECK(horon_setting(NULL, "nothing") == NULL && horon_last_error_kind() == HORON_USAGE_ERROR);
  CHECK(strstr(horon_last_operations(NULL), "mean") != NULL);
  CHECK(horon_has_part(NULL, "no_such_part") == 0);
  char word[10] = "";
  uint64_t bytes = 0;
  if (rank == 1) CHECK(horon_store_set(NULL, "word", "hello", 5) == 0);
  CHECK(horon_store_get(NULL, "word", word, 4, &bytes, 20000) == 0 && bytes == 5 && strcmp(word, "hell") == 0);
  CHECK(horon_store_get(NULL, "never", word, 4, &bytes, 10) != 0 && horon_last_error_kind() == HORON_TIMEOUT);
}

/* A program that was built with a later header: fields that this library does not know are ignored. */
static void from_the_future(void) {
  struct {
    horon_options options;
    uint64_t more[4];
  } later = {options_of(HORON_MAX), {1, 2, 3, 4}};
  later.options.size = sizeof later;
  later.options.version = HORON_VERSION + 1;
  float data[1] = {3};
  CHECK(horon_wait(NULL, ALL_REDUCE("later", data, 1, HORON_F32, &later.options)) == 0 && data[0] == 3);
}

/* A program that was built with an earlier header: what lies behind its structs is neither read nor written. */
static void from_the_past(void) {
  horon_options options = options_of(HORON_MAX);
  options.size = offsetof(horon_options, prescale);
  options.prescale = 10;
  options.codec = "no such codec";
  float data[1] = {3};
  CHECK(horon_wait(NULL, ALL_REDUCE("earlier", data, 1, HORON_F32, &options)) == 0 && data[0] == 3);

  horon_buffer buffer = buffer_of(data, 1, HORON_F32);
  buffer.size = offsetof(horon_buffer, device);
  buffer.device = 99;
  CHECK(horon_wait(NULL, horon_all_reduce(NULL, "earlier", NULL, &buffer, &options)) == 0 && data[0] == 3);

  horon_counters counters = {offsetof(horon_counters, collectives), HORON_VERSION, 0, 99, 99, 99, 99};
  CHECK(horon_read_counters(NULL, &counters) == 0);
  CHECK(counters.operations > 0 && counters.collectives == 99 && counters.bytes_copied == 99);
}

/* Every struct has a size and a version; with these two alone all else is the default. */
static void size_and_version(void) {
  horon_options options = options_of(HORON_MAX);
  float data[1] = {3};
  options.size = offsetof(horon_options, op);
  CHECK(horon_wait(NULL, ALL_REDUCE("head", data, 1, HORON_F32, &options)) == 0 && data[0] == 6);
  options.size -= 1;
  CHECK(ALL_REDUCE("short", data, 1, HORON_F32, &options) == -2 && horon_last_error_kind() == HORON_USAGE_ERROR);
  CHECK(strstr(horon_last_error(), "horon_options: its size or version") != NULL);
  horon_counters counters = {offsetof(horon_counters, operations) - 1, HORON_VERSION, 99, 0, 0, 0, 0};
  CHECK(horon_read_counters(NULL, &counters) == 2 && counters.operations == 99);
  CHECK(strstr(horon_last_error(), "horon_counters: its size or version") != NULL);
}

/* Two beside the default one. */
static void sessions(int rank) {
  const char* settings[] = {"bucket_bytes", "1MB", NULL};
  horon_session_options options = {sizeof options, HORON_VERSION, 0, 0, settings};
  horon_session* one = NULL;
  horon_session* other = NULL;
  CHECK(horon_open(&options, &one) == 0 && horon_open(NULL, &other) == 0);
  CHECK(strcmp(horon_setting(one, "bucket_bytes"), "1MB") == 0 && horon_rank(one) == rank && horon_size(other) == 2);
  float a[1] = {1};
  float b[1] = {10};
  horon_session* first = rank == 0 ? one : other; /* the same name, in different orders */
  horon_session* second = rank == 0 ? other : one;
  const horon_handle early = horon_all_reduce(first, "x", NULL, BUFFER(first == one ? a : b, 1, HORON_F32), NULL);
  const horon_handle late = horon_all_reduce(second, "x", NULL, BUFFER(second == one ? a : b, 1, HORON_F32), NULL);
  CHECK(horon_wait(first, early) == 0 && horon_wait(second, late) == 0 && a[0] == 2 && b[0] == 20);
  CHECK(horon_close(one) == 0);
  CHECK(horon_rank(one) == -1 && horon_close(one) == 2 && horon_barrier(one, NULL, NULL) == -2);
  CHECK(horon_wait(other, horon_barrier(other, NULL, NULL)) == 0 && horon_close(other) == 0);
  settings[1] = "much";
  CHECK(horon_open(&options, &one) == 2 && strstr(horon_last_error(), "bucket") != NULL);
}

int main(void) {
  CHECK(horon_rank(NULL) == -1 && horon_is_initialized() == 0);
  CHECK(ALL_REDUCE("x", NULL, 0, HORON_F32, NULL) == -2);
  const char* settings[] = {"log_level", "error", NULL};
  const horon_session_options options = {sizeof options, HORON_VERSION, 0, 0, settings};
  for (int again = 0; again < 2; ++again) {
    CHECK(horon_init_with(&options) == 0);
    CHECK(horon_init() == 2);
    CHECK(horon_size(NULL) == 2 && horon_local_size(NULL) == 2 && horon_cross_size(NULL) == 1);
    const int rank = horon_rank(NULL);
    all_operations(rank);
    apart(rank);
    made_by_the_operation(rank);
    groups(rank);
    scaled(rank);
    handles(rank);
    threads();
    declared();
    questions(rank);
    from_the_future();
    from_the_past();
    size_and_version();
    sessions(rank);
    errors_and_sets(rank);
    CHECK(horon_shutdown() == 0);
  }
  printf("horon %s from C\n", horon_version());
  return 0;
}
