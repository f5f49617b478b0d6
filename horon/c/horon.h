#ifndef HORON_C_H
#define HORON_C_H

/* Horon for every language: plain C, no exceptions, no C++ types. libhoron.so.1.
 *
 * A session is one rank of a job, however the process was started (horon run, mpirun, srun,
 * TF_CONFIG, by hand, alone). Most programs have one: horon_init() creates it, and a null
 * session in every call below means that one. Programs may open more, in all processes in the
 * same order.
 *
 *   horon_init();
 *   horon_buffer data = {sizeof data, HORON_VERSION, values, count, HORON_F32};
 *   horon_wait(NULL, horon_all_reduce(NULL, "fc.weight", NULL, &data, NULL));
 *   horon_shutdown();
 *
 * Errors: functions that return int return 0 or an error code (the exit codes of docs/errors.md:
 * 2 wrong usage, 10 a peer was lost or is late, 11 ranks disagree, ...). Functions that return a
 * handle return a value above 0, or minus the code. horon_last_error(), _kind() and _ranks()
 * then give details to the calling thread, until its next failing call.
 *
 * Structs begin with their own size and version, so that later libraries can append fields. Set
 * these two and leave everything else zero, which always means the default:
 *   horon_options options = {sizeof options, HORON_VERSION};
 * Fields that an older program does not have are taken as zero. Names, values and fields keep
 * their meaning as long as the library is libhoron.so.1.
 *
 * Threads: any thread may call, several at a time. The first wait for a handle returns its error
 * and releases the handle. Fork: a child may query its parent's ranks and sizes (horon_rank()
 * and the like); everything else returns 2, and the child's exit does not affect the parent.
 * After horon_init() the child has its own rank. */

#include "horon/c/types.h"

#if defined(__GNUC__)
#define HORON_C_API __attribute__((visibility("default")))
#else
#define HORON_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- sessions */

/* Collective over all processes. `options` may be null. */
HORON_C_API int horon_open(const horon_session_options* options, horon_session** session);
/* Work in flight has two seconds to finish, then it ends with an error, and so do all waits.
 * Returns after other threads' calls have returned; the session must not be used afterwards.
 * Frees the memory of horon_declare and horon_allocate. */
HORON_C_API int horon_close(horon_session* session);

/* The session that null means; horon_init_with(null) is horon_init(). May be called again after
 * horon_shutdown: creates a new communicator. If the process does not handle SIGUSR1, the signal
 * from now on writes the last operations to a file (HORON_FLIGHT_FOLDER). A process that ends
 * without horon_shutdown (main returns, exit) does it at exit. */
HORON_C_API int horon_init(void);
HORON_C_API int horon_init_with(const horon_session_options* options);
HORON_C_API int horon_shutdown(void);
HORON_C_API int horon_is_initialized(void);

/* -1 without a session. */
HORON_C_API int horon_rank(horon_session* session);
HORON_C_API int horon_size(horon_session* session);
HORON_C_API int horon_local_rank(horon_session* session);
HORON_C_API int horon_local_size(horon_session* session);
HORON_C_API int horon_cross_rank(horon_session* session);
HORON_C_API int horon_cross_size(horon_session* session);
/* The number of times that the ranks of this session have reconnected. Always 0 so far: these
 * functions cannot make them reconnect yet. */
HORON_C_API int horon_generation(horon_session* session);

HORON_C_API const char* horon_version(void);
HORON_C_API const char* horon_last_error(void);
HORON_C_API int horon_last_error_kind(void);
/* Writes the ranks that the last error names, at most `room`, into `ranks`; returns how many
 * there are, of which 64 are stored. */
HORON_C_API int horon_last_error_ranks(int* ranks, int room);

/* Strings are valid for the calling thread until its next call of the same function; null after
 * an error. The value of a setting; the backend of collectives; the last operations of this
 * rank. */
HORON_C_API const char* horon_setting(horon_session* session, const char* name);
HORON_C_API const char* horon_backend(horon_session* session);
HORON_C_API const char* horon_last_operations(horon_session* session);
/* 1 if the part (cuda, nccl, mpi_openmpi, mpi_mpich) can be opened here, 0 if not, minus a code
 * without a session. */
HORON_C_API int horon_has_part(horon_session* session, const char* name);

HORON_C_API int horon_read_counters(horon_session* session, horon_counters* counters);

/* --- operations: all asynchronous */

/* `name`: null or empty: the operation runs in the order of the calls, which must be the same on
 * all ranks. Named operations may be submitted in any order; a name may be in flight only once
 * at a time. `in`: not changed; null: `out` is both. `options`: null: the defaults. */
HORON_C_API horon_handle horon_all_reduce(horon_session* session, const char* name,
                                          const horon_buffer* in, const horon_buffer* out,
                                          const horon_options* options);
/* `in` is read only on the root. */
HORON_C_API horon_handle horon_broadcast(horon_session* session, const char* name,
                                         const horon_buffer* in, const horon_buffer* out, int root,
                                         const horon_options* options);
/* counts: elements of each rank's segment; null: as even as possible, the first ranks get one
 * more. If `out` is null the operation allocates memory: horon_result(). The same holds below. */
HORON_C_API horon_handle horon_reduce_scatter(horon_session* session, const char* name,
                                              const horon_buffer* in, const horon_buffer* out,
                                              const uint64_t* counts, const horon_options* options);
/* The sizes of the ranks' contributions may differ. */
HORON_C_API horon_handle horon_all_gather(horon_session* session, const char* name,
                                          const horon_buffer* in, const horon_buffer* out,
                                          const horon_options* options);
/* sends: number of elements for each rank, in order. receives: number expected from each rank;
 * null together with `out`: whatever they send. */
HORON_C_API horon_handle horon_all_to_all(horon_session* session, const char* name,
                                          const horon_buffer* in, const uint64_t* sends,
                                          const horon_buffer* out, const uint64_t* receives,
                                          const horon_options* options);
HORON_C_API horon_handle horon_barrier(horon_session* session, const char* name,
                                       const horon_options* options);

/* Several operations under one name: either all are executed or none. */
HORON_C_API horon_handle horon_group(horon_session* session, const char* name,
                                     const horon_item* items, int count,
                                     const horon_options* options);

/* --- handles */

/* 1 if the operation has ended, 0 if not, minus a code for an unknown handle. */
HORON_C_API int horon_poll(horon_session* session, horon_handle handle);
/* Waits, returns the operation's error code and releases the handle, unless there is a
 * horon_result() to fetch. */
HORON_C_API int horon_wait(horon_session* session, horon_handle handle);
/* Waits at most this long; -1: not ended yet, the handle remains valid. */
HORON_C_API int horon_wait_for(horon_session* session, horon_handle handle, int64_t milliseconds);
/* Waits for all of them, even after errors; returns the first error. */
HORON_C_API int horon_wait_all(horon_session* session, const horon_handle* handles, int count);
/* Releases the handle and its result. An operation in flight continues: its buffers must stay
 * valid until it has ended. */
HORON_C_API int horon_release(horon_session* session, horon_handle handle);

/* The memory that the operation allocated; call it after a wait; valid until horon_release().
 * item: index within a group, else 0. */
HORON_C_API int horon_result(horon_session* session, horon_handle handle, int item,
                             horon_made* made);

/* Calls done(user, code, text) once when the operation has ended: on a thread of the library, or
 * immediately on this one. The callback must not wait for operations or close the session. The
 * handle remains valid. */
HORON_C_API int horon_on_done(horon_session* session, horon_handle handle, horon_done done,
                              void* user);
/* A descriptor (eventfd) that is readable while there are ended operations, submitted from now
 * on, that horon_next_done() has not returned. Owned by the session. Minus a code: error. */
HORON_C_API int horon_descriptor(horon_session* session);
/* The handle of one such operation, or 0. It has ended, but must still be waited for. */
HORON_C_API horon_handle horon_next_done(horon_session* session);

/* --- memory */

/* Collective, with the same arguments on all ranks: the tensors that every step all-reduces with
 * these options, in the order in which they become ready. views[i]: memory for the i-th tensor;
 * submitted from there it is reduced in place, without a copy. Another call replaces the list;
 * earlier memory stays valid. */
HORON_C_API int horon_declare(horon_session* session, const horon_tensor* tensors, int count,
                              const horon_options* options, void** views);
/* Host memory that the ranks of this host access without a copy. */
HORON_C_API int horon_allocate(horon_session* session, uint64_t count, int dtype, void** data);
HORON_C_API int horon_free(horon_session* session, void* data);

/* --- process sets, join */

/* Collective, in the same order on all ranks. Returns the number of the set, or minus a code. */
HORON_C_API int horon_add_process_set(horon_session* session, const int* ranks, int count);
HORON_C_API int horon_remove_process_set(horon_session* session, int set);
/* Writes at most `room` of them; returns how many there are, or minus a code. */
HORON_C_API int horon_process_sets(horon_session* session, int* sets, int room);
HORON_C_API int horon_process_set_ranks(horon_session* session, int set, int* ranks, int room);
/* This rank's number in the set; -1: it is not in the set. Minus a code below that. */
HORON_C_API int horon_process_set_rank(horon_session* session, int set);
/* Collective over the set, blocking. *last: the last rank that joined; may be null. */
HORON_C_API int horon_join(horon_session* session, int set, int* last);

/* --- timeline, store */

/* Collective: each rank writes its timeline to path.RANK; `horon trace merge` combines them. */
HORON_C_API int horon_start_timeline(horon_session* session, const char* path);
HORON_C_API int horon_stop_timeline(horon_session* session);

/* A map from names to bytes, shared by all ranks of the job; at most 1 MiB per value. For small
 * control data. */
HORON_C_API int horon_store_set(horon_session* session, const char* key, const void* data,
                                uint64_t bytes);
/* Waits for the key. *bytes: size of the value; at most `room` bytes are copied. */
HORON_C_API int horon_store_get(horon_session* session, const char* key, void* data, uint64_t room,
                                uint64_t* bytes, int64_t milliseconds);

#ifdef __cplusplus
}
#endif
#endif
