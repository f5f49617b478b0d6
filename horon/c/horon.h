#ifndef HORON_C_H
#define HORON_C_H

/* Horon for every language: plain C, no exceptions, no C++ types. libhoron.so.
 *
 * One job in a process at a time: horon_init joins it, however the process was started (horon run,
 * mpirun, srun, TF_CONFIG, by hand, alone). Functions that return int give 0 or an error code (the
 * exit codes of docs/errors.md: 2 wrong usage, 10 a peer was lost, 11 ranks disagree, ...); those
 * that return a handle give one above 0, or minus the code. horon_last_error() then has the text,
 * for the calling thread. Any thread may call. Buffers belong to the caller and stay valid until
 * their operation was waited for. Operations with a name may be submitted in any order; a name is
 * in flight once at a time. */

#include <stdint.h>

#if defined(__GNUC__)
#define HORON_C_API __attribute__((visibility("default")))
#else
#define HORON_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int64_t horon_handle;

enum horon_dtype {
  HORON_U8,
  HORON_I8,
  HORON_I16,
  HORON_I32,
  HORON_I64,
  HORON_F16,
  HORON_BF16,
  HORON_F32,
  HORON_F64,
  HORON_BOOL
};
enum horon_op { HORON_SUM, HORON_AVERAGE, HORON_MIN, HORON_MAX, HORON_PRODUCT };

/* How an operation is done; horon_options_init() gives the defaults. */
typedef struct {
  int32_t op;       /* horon_op */
  int32_t exact;    /* 1: the same bits on any number of ranks */
  double prescale;  /* factor on what goes in */
  double postscale; /* factor on what comes out */
  int32_t priority; /* above 0: urgent, overtakes what is not; the same class on all ranks */
  int32_t set;      /* process set; 0: all ranks */
  const char*
      codec; /* f32 all-reduce, sum or average: "fp16", "bf16", "fp16+feedback"; null: none */
} horon_options;

HORON_C_API void horon_options_init(horon_options* options);

/* Again after horon_shutdown: a new communicator. If the process does nothing on SIGUSR1, it writes
 * its last operations to a file from now on (HORON_FLIGHT_FOLDER). */
HORON_C_API int horon_init(void);
/* Work in flight has two seconds to end, then it ends with an error, and so does every horon_wait.
 * A process that ends without it (main returns, exit) does the same on its way out. */
HORON_C_API int horon_shutdown(void);
HORON_C_API int horon_is_initialized(void);
/* -1 before horon_init. */
HORON_C_API int horon_rank(void);
HORON_C_API int horon_size(void);
HORON_C_API int horon_local_rank(void);
HORON_C_API int horon_local_size(void);
HORON_C_API int horon_cross_rank(void);
HORON_C_API int horon_cross_size(void);
HORON_C_API const char* horon_version(void);
HORON_C_API const char* horon_last_error(void);

/* All asynchronous; `options` may be null. `name` may be null or empty: such operations run in the
 * order of their calls. */
HORON_C_API horon_handle horon_all_reduce(const char* name, void* data, uint64_t count, int dtype,
                                          const horon_options* options);
/* All of them or none. */
HORON_C_API horon_handle horon_grouped_all_reduce(const char* name, void* const* data,
                                                  const uint64_t* counts, const int* dtypes,
                                                  int parts, const horon_options* options);
HORON_C_API horon_handle horon_broadcast(const char* name, void* data, uint64_t count, int dtype,
                                         int root, const horon_options* options);
/* counts: elements of each rank's segment, or null for an even split. */
HORON_C_API horon_handle horon_reduce_scatter(const char* name, const void* in, uint64_t count,
                                              void* out, uint64_t out_count, int dtype,
                                              const uint64_t* counts, const horon_options* options);
/* Sizes may differ; see horon_gathered(). */
HORON_C_API horon_handle horon_all_gather(const char* name, const void* in, uint64_t count,
                                          int dtype, const horon_options* options);
HORON_C_API horon_handle horon_all_to_all(const char* name, const void* in, const uint64_t* sends,
                                          void* out, const uint64_t* receives, int dtype,
                                          const horon_options* options);
HORON_C_API horon_handle horon_barrier(const char* name, const horon_options* options);

/* 1 if over, 0 if not, minus a code for an unknown handle. */
HORON_C_API int horon_poll(horon_handle handle);
/* Waits, gives the operation's error code, and forgets the handle (an all_gather's not before
 * horon_gathered). */
HORON_C_API int horon_wait(horon_handle handle);
/* After horon_wait of an all_gather: elements of each rank into counts[size]; with out not null
 * copies the elements there and forgets the handle. */
HORON_C_API int horon_gathered(horon_handle handle, uint64_t* counts, void* out);

/* All ranks: each writes its timeline to path.RANK; `horon trace merge` makes one of them. */
HORON_C_API int horon_start_timeline(const char* path);
HORON_C_API int horon_stop_timeline(void);
/* The last operations of this rank as text, for the calling thread until its next call. */
HORON_C_API const char* horon_last_operations(void);

/* Blocking, all ranks. *last: the rank that was last. */
HORON_C_API int horon_join(int set, int* last);
/* All ranks, in the same order. Gives the number of the set, or minus a code. */
HORON_C_API int horon_add_process_set(const int* ranks, int count);
HORON_C_API int horon_remove_process_set(int set);

#ifdef __cplusplus
}
#endif
#endif
