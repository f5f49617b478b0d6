#ifndef HORON_C_H
#define HORON_C_H

/* Horon for every language: plain C, no exceptions, no C++ types. libhoron.so.1.
 *
 * A session is one rank of a job, however the process was started (horon run, mpirun, srun,
 * TF_CONFIG, by hand, alone). Most programs have one: horon_init() makes it, and a null session in
 * every call below means that one. Others open as many as they like, all processes in the same
 * order.
 *
 * Errors: functions that return int give 0 or an error code (the exit codes of docs/errors.md: 2
 * wrong usage, 10 a peer was lost or is too late, 11 ranks disagree, ...), those that return a
 * handle one above 0 or minus the code. horon_last_error(), _kind() and _ranks() then tell more, to
 * the calling thread, until its next call that fails.
 *
 * Structs begin with their own size and version, so that later libraries can add to their end. Set
 * these, and the rest to zero, which always means the default:
 *   horon_options options = {sizeof options, HORON_VERSION};
 * What an older program does not have is taken as zero. Names, values and fields keep their meaning
 * for as long as the library is libhoron.so.1.
 *
 * Threads: any thread may call, several at a time. Whoever waits for a handle first has
 * its error and makes it forgotten. Fork: a child can ask where its parent is (horon_rank() and the
 * like); everything else gives 2 there, and its end does no harm to the parent. After horon_init()
 * it has a place of its own. */

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

/* All processes. `options` may be null. */
HORON_C_API int horon_open(const horon_session_options* options, horon_session** session);
/* Work in flight has two seconds to end, then it ends with an error, and so does every wait. Other
 * threads that are in a call come back first; nobody may use the session afterwards. Memory of
 * horon_declare and horon_allocate is gone with it. */
HORON_C_API int horon_close(horon_session* session);

/* The session that null stands for; horon_init_with(null) is horon_init(). Again after
 * horon_shutdown: a new communicator. If the process does nothing on SIGUSR1, it writes its last
 * operations to a file from now on (HORON_FLIGHT_FOLDER). A process that ends without
 * horon_shutdown (main returns, exit) does it on its way out. */
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
/* How often the ranks of this session have formed anew; 0 at first. */
HORON_C_API int horon_generation(horon_session* session);

HORON_C_API const char* horon_version(void);
HORON_C_API const char* horon_last_error(void);
HORON_C_API int horon_last_error_kind(void);
/* Ranks that the last error names, at most `room` of them into `ranks`; how many there are, of
 * which 64 are kept. */
HORON_C_API int horon_last_error_ranks(int* ranks, int room);

/* Text for the calling thread until its next call of the same function; null after an error.
 * A setting by its name; what collectives go over; the last operations of this rank. */
HORON_C_API const char* horon_setting(horon_session* session, const char* name);
HORON_C_API const char* horon_backend(horon_session* session);
HORON_C_API const char* horon_last_operations(horon_session* session);
/* 1 if the part (cuda, nccl, mpi_openmpi, mpi_mpich) can be opened here, 0 if not, minus a code
 * without a session. */
HORON_C_API int horon_has_part(horon_session* session, const char* name);

HORON_C_API int horon_read_counters(horon_session* session, horon_counters* counters);

/* --- operations: all asynchronous */

/* `name`: null or empty: such operations run in the order of their calls, which is the same on all
 * ranks. Operations with a name may be submitted in any order; a name is in flight once at a time.
 * `in`: null: `out` is both. It is not changed. `options`: null: the defaults. */
HORON_C_API horon_handle horon_all_reduce(horon_session* session, const char* name,
                                          const horon_buffer* in, const horon_buffer* out,
                                          const horon_options* options);
/* `in` is read on the root only. */
HORON_C_API horon_handle horon_broadcast(horon_session* session, const char* name,
                                         const horon_buffer* in, const horon_buffer* out, int root,
                                         const horon_options* options);
/* counts: elements of each rank's segment; null: cut as evenly as possible, the first ranks one
 * more. Where `out` is null the operation makes memory: horon_result(). So below. */
HORON_C_API horon_handle horon_reduce_scatter(horon_session* session, const char* name,
                                              const horon_buffer* in, const horon_buffer* out,
                                              const uint64_t* counts, const horon_options* options);
/* What each rank brings may differ in size. */
HORON_C_API horon_handle horon_all_gather(horon_session* session, const char* name,
                                          const horon_buffer* in, const horon_buffer* out,
                                          const horon_options* options);
/* sends: elements for each rank, in order. receives: those expected of each rank; null together
 * with `out`: as many as they send. */
HORON_C_API horon_handle horon_all_to_all(horon_session* session, const char* name,
                                          const horon_buffer* in, const uint64_t* sends,
                                          const horon_buffer* out, const uint64_t* receives,
                                          const horon_options* options);
HORON_C_API horon_handle horon_barrier(horon_session* session, const char* name,
                                       const horon_options* options);

/* Several under one name: all of them happen, or none. */
HORON_C_API horon_handle horon_group(horon_session* session, const char* name,
                                     const horon_item* items, int count,
                                     const horon_options* options);

/* --- handles */

/* 1 if over, 0 if not, minus a code for an unknown handle. */
HORON_C_API int horon_poll(horon_session* session, horon_handle handle);
/* Waits, gives the operation's error code, and forgets the handle, unless there is a horon_result()
 * to fetch. */
HORON_C_API int horon_wait(horon_session* session, horon_handle handle);
/* The same for at most so long; -1: not over yet, and the handle is kept. */
HORON_C_API int horon_wait_for(horon_session* session, horon_handle handle, int64_t milliseconds);
/* For all of them, whatever happens; the first error. */
HORON_C_API int horon_wait_all(horon_session* session, const horon_handle* handles, int count);
/* Forgets it, and its result. What is in flight goes on: its buffers stay valid until it is over.
 */
HORON_C_API int horon_release(horon_session* session, horon_handle handle);

/* What the operation made itself, after it was waited for; valid until horon_release(). item: which
 * of a group's, else 0. */
HORON_C_API int horon_result(horon_session* session, horon_handle handle, int item,
                             horon_made* made);

/* Calls done(user, code, text) once when the operation is over: on a thread of the library, or at
 * once on this one. It must neither wait for operations nor close the session. The handle stays. */
HORON_C_API int horon_on_done(horon_session* session, horon_handle handle, horon_done done,
                              void* user);
/* A descriptor (eventfd) that is readable when operations are over that horon_next_done() has not
 * named yet: of those submitted from now on. Belongs to the session. Minus a code: error. */
HORON_C_API int horon_descriptor(horon_session* session);
/* One of them, or 0. It is over, and still has to be waited for. */
HORON_C_API horon_handle horon_next_done(horon_session* session);

/* --- memory */

/* All ranks, the same: what every step all-reduces with these options, in the order in which it
 * becomes ready. views[i]: where the caller puts the i-th; submitted from there it is reduced in
 * place, without a copy. Another call replaces the list; memory of before stays valid. */
HORON_C_API int horon_declare(horon_session* session, const horon_tensor* tensors, int count,
                              const horon_options* options, void** views);
/* Host memory that the ranks of this host reach without a copy. */
HORON_C_API int horon_allocate(horon_session* session, uint64_t count, int dtype, void** data);
HORON_C_API int horon_free(horon_session* session, void* data);

/* --- process sets, join */

/* All ranks, in the same order. Gives the number of the set, or minus a code. */
HORON_C_API int horon_add_process_set(horon_session* session, const int* ranks, int count);
HORON_C_API int horon_remove_process_set(horon_session* session, int set);
/* At most `room` of them; how many there are, or minus a code. */
HORON_C_API int horon_process_sets(horon_session* session, int* sets, int room);
HORON_C_API int horon_process_set_ranks(horon_session* session, int set, int* ranks, int room);
/* This rank's place in the set; -1: it is not in it. Minus a code below that. */
HORON_C_API int horon_process_set_rank(horon_session* session, int set);
/* Blocking, all ranks of the set. *last: the rank that was last; may be null. */
HORON_C_API int horon_join(horon_session* session, int set, int* last);

/* --- timeline, store */

/* All ranks: each writes its timeline to path.RANK; `horon trace merge` makes one of them. */
HORON_C_API int horon_start_timeline(horon_session* session, const char* path);
HORON_C_API int horon_stop_timeline(horon_session* session);

/* A map from names to bytes that all ranks of the job share; at most 1 MiB each. For words before
 * and beside the operations, not for data. */
HORON_C_API int horon_store_set(horon_session* session, const char* key, const void* data,
                                uint64_t bytes);
/* Waits for the key. *bytes: how many there are; at most `room` of them are copied. */
HORON_C_API int horon_store_get(horon_session* session, const char* key, void* data, uint64_t room,
                                uint64_t* bytes, int64_t milliseconds);

#ifdef __cplusplus
}
#endif
#endif
