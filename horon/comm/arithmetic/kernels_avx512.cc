#define HORON_KERNELS avx512_table
#define HORON_KERNEL_NAME "avx512"
#define HORON_F16C 1
#define HORON_VECTOR_BYTES 64
#include "horon/comm/arithmetic/kernels_impl.h"
