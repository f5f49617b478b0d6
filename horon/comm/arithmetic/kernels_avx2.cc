#define HORON_KERNELS avx2_table
#define HORON_KERNEL_NAME "avx2"
#define HORON_F16C 1
#define HORON_VECTOR_BYTES 32
#include "horon/comm/arithmetic/kernels_impl.h"
