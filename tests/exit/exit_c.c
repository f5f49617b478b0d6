/* One rank of a C program that ends without horon_shutdown(), or calls it while something is in flight. Rank 0
 * does it; the others stay until it is gone.
 *   return     all ranks return from main
 *   status     all ranks exit(7) in the middle
 *   flight     rank 0 returns from main with an all_reduce and an all_gather in flight
 *   thread     rank 0 returns from main while a thread is in horon_wait
 *   waiter     rank 0 calls horon_shutdown while a thread is in horon_wait
 *   unnamed    the same with an operation without a name, which runs elsewhere
 *   join       the same with a thread in horon_join
 *   set        the same with a thread in horon_add_process_set
 *   unset      the same with a thread in horon_remove_process_set
 *   gather     rank 0 calls horon_shutdown with all_gathers in flight that nobody waited for and the others never ask for
 *   late       the same, but the others come while rank 0 is in horon_shutdown
 *   fork       rank 0 forks a child that ends by exit() while the job goes on
 *   child      alone: forks a child that takes a place of its own, while the parent keeps its own
 *   loop       all-reduces until an error, which it prints and returns
 *   signals    all ranks return from main while SIGUSR1 comes again and again
 *   dump       all ranks return from main while the last operations are being written, which ends only after that */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "horon/c/horon.h"

#include "tests/c_api/shorthand.h"

static float data[1000];
static volatile int waiter_id = 0;
static volatile int waited = -1;
static char waited_error[500];

static void say_much(void) {
  for (int line = 0; line < 1000; ++line) printf("rank %d line %d\n", horon_rank(NULL), line);
  printf("rank %d end\n", horon_rank(NULL));
}

static void* wait_alone(void* name) {
  const horon_handle handle = ALL_REDUCE(name, data, 1000, HORON_F32, NULL);
  waiter_id = (int)syscall(SYS_gettid);
  waited = horon_wait(NULL, handle);
  strncpy(waited_error, horon_last_error(), sizeof(waited_error) - 1);
  return NULL;
}

/* What all ranks must call, called alone. */
static void* call_alone(void* mode) {
  const int all[2] = {0, 1};
  waiter_id = (int)syscall(SYS_gettid);
  if (strcmp(mode, "join") == 0) {
    waited = horon_join(NULL, 0, NULL);
  } else if (strcmp(mode, "set") == 0) {
    waited = -horon_add_process_set(NULL, all, 2);
  } else {
    waited = horon_remove_process_set(NULL, 1);
  }
  strncpy(waited_error, horon_last_error(), sizeof(waited_error) - 1);
  return NULL;
}

/* Until the thread sleeps, which it does only in horon_wait and its like. */
static void wait_until_asleep(void) {
  char state = 'R';
  while (waiter_id == 0) usleep(1000);
  while (state != 'S') {
    char path[100];
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", waiter_id);
    FILE* file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(fscanf(file, "%*d %*s %c", &state) == 1);
    fclose(file);
    usleep(1000);
  }
}

static void shut_down_under_a_waiter(void* (*wait)(void*), char* name) {
  pthread_t waiter;
  CHECK(pthread_create(&waiter, NULL, wait, name) == 0);
  wait_until_asleep();
  CHECK(horon_shutdown() == 0);
  CHECK(pthread_join(waiter, NULL) == 0);
  CHECK(waited > 0);
  printf("wait gave %d: %s\n", waited, waited_error);
  CHECK(horon_rank(NULL) == -1);
}

/* The file that SIGUSR1 writes is a pipe: whoever writes it waits for whoever reads it. */
static char dump_path[500];

static int is_opening(const char* thread) {
  char path[300];
  char opening[20];
  char now[20] = "";
  snprintf(path, sizeof(path), "/proc/self/task/%s/syscall", thread);
  snprintf(opening, sizeof(opening), "%d ", SYS_openat);
  FILE* file = fopen(path, "r");
  if (file == NULL) return 0;
  const int has = fgets(now, sizeof(now), file) != NULL;
  fclose(file);
  return has && strncmp(now, opening, strlen(opening)) == 0;
}

static void begin_dump(void) {
  snprintf(dump_path, sizeof(dump_path), "%s/horon-last-operations.%d.rank%d.txt",
           getenv("HORON_FLIGHT_FOLDER"), getpid(), horon_rank(NULL));
  CHECK(mkfifo(dump_path, 0600) == 0);
  kill(getpid(), SIGUSR1);
  for (int found = 0; !found; usleep(1000)) {
    DIR* threads = opendir("/proc/self/task");
    const int self = (int)syscall(SYS_gettid);
    for (struct dirent* one = readdir(threads); one != NULL; one = readdir(threads))
      if (atoi(one->d_name) > 0 && atoi(one->d_name) != self) found |= is_opening(one->d_name);
    closedir(threads);
  }
}

/* An exit handler that was there before horon_init, and so runs when the job is closed. */
static void end_dump(void) {
  if (dump_path[0] == '\0') return;
  FILE* file = fopen(dump_path, "r");
  int bytes = 0;
  while (fgetc(file) != EOF) ++bytes;
  fclose(file);
  printf("read %s\n", bytes > 100 ? "the last operations" : "nothing");
}

static void gather_and_wait(const char* name) {
  const horon_handle handle = horon_all_gather(NULL, name, BUFFER(data, 1000, HORON_F32), NULL, NULL);
  horon_made made = {sizeof made, HORON_VERSION, NULL, 0, 0, 0, NULL};
  CHECK(horon_wait(NULL, handle) == 0);
  CHECK(horon_result(NULL, handle, 0, &made) == 0 && made.counts[0] == 1000);
}

static int take_a_place(void) {
  const pid_t child = fork();
  if (child == 0) {
    CHECK(horon_rank(NULL) == 0 && horon_barrier(NULL, "", NULL) == -2);
    CHECK(horon_init() == 0 && horon_is_initialized() == 1);
    CHECK(horon_wait(NULL, ALL_REDUCE("x", data, 1000, HORON_F32, NULL)) == 0);
    const char* folder = getenv("HORON_FLIGHT_FOLDER");
    char path[500];
    snprintf(path, sizeof(path), "%s/horon-last-operations.%d.rank0.txt", folder, getpid());
    kill(getpid(), SIGUSR1); /* the parent's thread for it is not here */
    while (access(path, R_OK) != 0) usleep(1000);
    CHECK(horon_shutdown() == 0);
    exit(5);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5);
  CHECK(horon_wait(NULL, ALL_REDUCE("x", data, 1000, HORON_F32, NULL)) == 0 && horon_shutdown() == 0);
  printf("both\n");
  return 0;
}

static void* signal_often(void* nothing) {
  for (;;) {
    kill(getpid(), SIGUSR1);
    usleep(200);
  }
  return nothing;
}

int main(int argc, char** argv) {
  CHECK(argc == 2);
  const char* mode = argv[1];
  CHECK(atexit(end_dump) == 0);
  CHECK(horon_init() == 0);
  CHECK(horon_wait(NULL, ALL_REDUCE("x", data, 1000, HORON_F32, NULL)) == 0);
  if (strcmp(mode, "child") == 0) return take_a_place();
  const int rank = horon_rank(NULL);
  int32_t pid_of_0 = getpid();
  CHECK(horon_wait(NULL, horon_broadcast(NULL, "pid", NULL, BUFFER(&pid_of_0, 1, HORON_I32), 0, NULL)) == 0);
  say_much();
  if (strcmp(mode, "return") == 0) {
    if (rank == 1) usleep(300000);
    return 0;
  }
  if (strcmp(mode, "status") == 0) exit(7);
  pthread_t thread;
  if (strcmp(mode, "signals") == 0) {
    CHECK(pthread_create(&thread, NULL, signal_often, NULL) == 0);
    usleep(rank == 1 ? 200000 : 100000);
    return 0;
  }
  if (strcmp(mode, "dump") == 0) {
    begin_dump();
    return 0;
  }
  if (strcmp(mode, "loop") == 0) {
    printf("rank %d pid %d\n", rank, getpid());
    fflush(stdout);
    for (int code = 0;; usleep(2000)) {
      code = horon_wait(NULL, ALL_REDUCE("x", data, 1000, HORON_F32, NULL));
      if (code == 0) continue;
      fprintf(stderr, "%s\n", horon_last_error());
      return code;
    }
  }
  if (strcmp(mode, "fork") == 0) {
    fflush(stdout);
    const pid_t child = rank == 0 ? fork() : -1;
    if (child == 0) { /* it may ask where its parent is, and no more */
      CHECK(horon_rank(NULL) == 0 && horon_size(NULL) == 2 && horon_is_initialized() == 0);
      CHECK(ALL_REDUCE("x", data, 1000, HORON_F32, NULL) == -2);
      CHECK(strstr(horon_last_error(), "forked") != NULL && horon_shutdown() == 2);
      exit(0);
    }
    int status = 0;
    if (rank == 0) CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(horon_wait(NULL, ALL_REDUCE("x", data, 1000, HORON_F32, NULL)) == 0);
    return 0;
  }
  if (rank != 0 && strcmp(mode, "late") == 0) {
    usleep(300000);
    gather_and_wait("alone");
    gather_and_wait("");
  }
  const int both[2] = {0, 1};
  if (strcmp(mode, "unset") == 0) CHECK(horon_add_process_set(NULL, both, 2) == 1);
  if (rank != 0) {
    while (kill(pid_of_0, 0) == 0) usleep(5000);
    return 0;
  }
  if (strcmp(mode, "flight") == 0) {
    CHECK(ALL_REDUCE("alone", data, 1000, HORON_F32, NULL) > 0);
    CHECK(horon_all_gather(NULL, "too", BUFFER(data, 1000, HORON_F32), NULL, NULL) > 0);
  } else if (strcmp(mode, "thread") == 0) {
    CHECK(pthread_create(&thread, NULL, wait_alone, "alone") == 0);
    wait_until_asleep();
  } else if (strcmp(mode, "gather") == 0 || strcmp(mode, "late") == 0) {
    CHECK(horon_all_gather(NULL, "alone", BUFFER(data, 1000, HORON_F32), NULL, NULL) > 0);
    CHECK(horon_all_gather(NULL, "", BUFFER(data, 1000, HORON_F32), NULL, NULL) > 0);
    CHECK(horon_shutdown() == 0);
  } else if (strcmp(mode, "waiter") == 0 || strcmp(mode, "unnamed") == 0) {
    shut_down_under_a_waiter(wait_alone, strcmp(mode, "unnamed") == 0 ? "" : "alone");
  } else {
    shut_down_under_a_waiter(call_alone, argv[1]);
  }
  return 0;
}
