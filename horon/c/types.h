#ifndef HORON_C_TYPES_H
#define HORON_C_TYPES_H

/* Values and structs of horon.h. The caller owns its structs and what they point to; the library
 * reads a struct only during the call. The memory of a buffer must stay valid until the operation
 * was waited for. Threads and errors: horon.h. */

#include <stdint.h>

#define HORON_VERSION 1 /* of this interface, and of its structs */

typedef struct horon_session horon_session;
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
enum horon_device { HORON_CPU, HORON_CUDA };
enum horon_operation {
  HORON_ALL_REDUCE,
  HORON_BROADCAST,
  HORON_REDUCE_SCATTER,
  HORON_ALL_GATHER,
  HORON_ALL_TO_ALL
};
/* The kind of an error determines the reaction: fix the call (usage), reconnect with the
 * remaining ranks (peer lost, timeout), check disk or network (io), report it (other). */
enum horon_error_kind {
  HORON_NO_ERROR,
  HORON_USAGE_ERROR,
  HORON_PEER_LOST,
  HORON_TIMEOUT,
  HORON_IO_ERROR,
  HORON_OTHER_ERROR
};

typedef struct horon_session_options {
  uint32_t size;         /* sizeof this struct */
  uint32_t version;      /* HORON_VERSION */
  int32_t takes_devices; /* 1: buffers may be on GPUs; an error if the cuda part cannot be opened */
  int32_t reserved;
  const char* const* settings; /* name, value, name, value, ..., null, as in docs/knobs.md; they
                                  override the environment */
} horon_session_options;

/* Memory that an operation reads or writes. Must stay valid until the operation was waited for. */
typedef struct horon_buffer {
  uint32_t size;
  uint32_t version;
  void* data;
  uint64_t count; /* elements */
  int32_t dtype;  /* horon_dtype */
  int32_t device; /* horon_device */
  int32_t device_index;
  int32_t reserved;
  void* stream; /* cudaStream_t: the operation starts after the work that is in it now; null: no
                   wait */
  void* ready;  /* cudaEvent_t, recorded by the caller: the operation starts after it; null: none */
  void* done;   /* cudaEvent_t: recorded when the result is available, before a wait returns; null:
                   none */
} horon_buffer;

/* Options of an operation. Must be the same on all ranks. */
typedef struct horon_options {
  uint32_t size;
  uint32_t version;
  int32_t op;           /* horon_op */
  int32_t exact;        /* 1: the same bits on any number of ranks */
  int32_t priority;     /* above 0: urgent, overtakes operations that are not */
  int32_t set;          /* process set; 0: all ranks */
  int32_t over_members; /* 1: averages divide by all members of the set; 0: by those that
                           contribute, which are fewer while others have joined */
  int32_t reserved;
  double prescale;   /* factor on the input; 0: none. Integers are scaled in f64, then truncated */
  double postscale;  /* factor on the output, likewise */
  const char* codec; /* f32 all-reduce, sum or average: "fp16", "bf16", "fp16+feedback", ... */
  uint64_t tag;      /* any other value that must be equal on all ranks, e.g. a hash of the shape */
  uint64_t step;     /* optimizer step from 1, for codecs that need it; 0: not given */
} horon_options;

/* One operation of a group. */
typedef struct horon_item {
  uint32_t size;
  uint32_t version;
  int32_t operation; /* horon_operation, all but HORON_ALL_TO_ALL */
  int32_t root;      /* HORON_BROADCAST */
  const horon_buffer* in;
  const horon_buffer* out;
  const uint64_t* counts; /* HORON_REDUCE_SCATTER */
} horon_item;

/* Memory that an operation allocated. */
typedef struct horon_made {
  uint32_t size;
  uint32_t version;
  void* data; /* host memory */
  uint64_t count;
  int32_t dtype;
  int32_t ranks;
  const uint64_t* counts; /* elements of each rank of the set, in order */
} horon_made;

/* A tensor that every step all-reduces. */
typedef struct horon_tensor {
  uint32_t size;
  uint32_t version;
  const char* name;
  uint64_t count;
  int32_t dtype;
  int32_t device;
  int32_t device_index;
  int32_t reserved;
} horon_tensor;

typedef struct horon_counters {
  uint32_t size;
  uint32_t version;
  uint64_t operations;       /* that succeeded */
  uint64_t collectives;      /* collectives that executed them */
  uint64_t control_messages; /* agreements; none in a step that follows the plan */
  uint64_t bytes;
  uint64_t bytes_copied; /* into and out of buckets */
} horon_counters;

/* Called when an operation has ended; text is empty on success. */
typedef void (*horon_done)(void* user, int code, const char* text);

#endif
